"""A fake recorder: the script reports its steps itself."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.recording.store import save_recording

RUNS = Path(__file__).parents[1] / "rules" / "accumulation" / "runs.py"


class TrainingWatch:
    """Records what the script does with `torch.train`."""

    def __init__(  # noqa: PLR0913 - as many things can be chosen
        self,
        recorder_path,
        command,
        *,
        budget,
        every,
        gradient_storage,
        max_steps,
        make_captures,
        on_step,
        sync_checks,
        room,
        keeps_batches,
    ):
        spec = importlib.util.spec_from_file_location("runs", RUNS)
        module = importlib.util.module_from_spec(spec)
        sys.modules["runs"] = module
        spec.loader.exec_module(module)
        self.path, self.on_step, self.steps = recorder_path, on_step, 0
        self.run = module.Run()
        self.command = command

    def start(self):
        torch = sys.modules["torch"]
        if getattr(torch, "is_unwatchable", False):
            raise GradscopeError("this torch cannot be watched", help="another one")
        torch.watch = self
        self.weights = self.run.model("model", 2)
        self.sgd = self.run.optimizer(self.weights)

    def backward(self, line):
        self.run.backward(self.weights, line=line)

    def zero(self, line):
        self.run.zero(self.sgd, line=line)

    def step(self, line):
        self.run.step(self.sgd, line=line)
        self.steps += 1
        self._save()
        if self.on_step is not None:
            self.on_step(self.steps)

    def see_end(self, error):
        pass

    def stop(self, ending):
        self._save(ending)

    def _save(self, *further):
        recording = self.run.recording()
        recording = replace(
            recording, command=self.command, evidence=(*recording.evidence, *further)
        )
        save_recording(recording, self.path, force=True)
