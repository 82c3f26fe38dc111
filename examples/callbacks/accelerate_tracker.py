"""accelerate: Accelerator(log_with=TorchprofTracker("run", steps=range(10, 15))), and accelerator.log({...}, step=step) as ever: it records these steps."""
import torchprof
from accelerate.tracking import GeneralTracker


class TorchprofTracker(GeneralTracker):
    name, requires_logging_directory, main_process_only = "torchprof", False, False
    tracker = property(lambda self: self.profile)

    def __init__(self, output, steps, **settings):
        super().__init__()
        self.profile, self.steps = torchprof.profile(output, **settings), steps

    def store_init_configuration(self, values):
        pass

    def log(self, values, step, **_):
        self.profile.step()
        if step == self.steps.start:
            self.profile.start()
        if step == self.steps.stop:
            self.profile.stop()
            print(self.profile.summary())
