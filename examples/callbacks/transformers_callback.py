"""transformers: Trainer(..., callbacks=[TorchprofCallback("run", steps=range(10, 15))]). It records these steps of the training, and prints the summary."""
import torchprof
import transformers


class TorchprofCallback(transformers.TrainerCallback):
    def __init__(self, output, steps, **settings):
        self.profile, self.steps = torchprof.profile(output, **settings), steps

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.steps.start:
            self.profile.start()

    def on_step_end(self, args, state, control, **_):
        self.profile.step()
        if state.global_step == self.steps.stop:
            self.profile.stop()
            print(self.profile.summary())
