"""Lightning: Trainer(callbacks=[TorchprofCallback("run", steps=range(10, 15))]). It records these batches of the training, and prints the summary."""
import lightning
import torchprof


class TorchprofCallback(lightning.Callback):
    def __init__(self, output, steps, **settings):
        self.profile, self.steps = torchprof.profile(output, **settings), steps

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.steps.start:
            self.profile.start()

    def on_train_batch_end(self, trainer, *_):
        self.profile.step()
        if trainer.global_step == self.steps.stop:
            self.profile.stop()
            print(self.profile.summary())
