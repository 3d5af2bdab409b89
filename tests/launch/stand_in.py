"""Installs the fake recorder before a command is run.

With it go stand-ins for what else needs the real torch.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

NAME = "gradscope.capture.training.watch"

spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name("stand_in_watch.py"))
sys.modules[NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[NAME])
captured_steps = sys.modules["gradscope.step_capture.script_captures"] = ModuleType("close_looks")
captured_steps.script_captures_by = lambda schedule, **_: None
gradient_storage = sys.modules["gradscope.capture.training.steps.measurements"] = ModuleType(
    "keeping"
)
gradient_storage.GradientStorage = lambda mode, every: None
