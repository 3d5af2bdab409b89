"""A process that has imported gradscope's command line, and forks for each command that it reads.

A command is a line of JSON: the folder, the arguments, the environment, and where its streams lead.
The answer is a line with its exit code. What is imported each time costs more than what is tested.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import gradscope.cli.launching
import gradscope.configuration
import gradscope.report.text  # noqa: F401
from gradscope.cli import main

for line in sys.stdin:
    command = json.loads(line)
    child = os.fork()
    if not child:
        break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(1, f"{code}\n".encode())
else:
    os._exit(0)

# From here on in the child, which ends as any process does.
for descriptor, (path, mode) in enumerate(command["streams"]):
    opened = os.open(path, os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, descriptor)
    os.close(opened)
sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
os.chdir(command["folder"])
os.environ.clear()
os.environ.update(command["environment"])
if command["stand_in"]:
    name = "gradscope.capture.training.watch"
    spec = importlib.util.spec_from_file_location(
        name, Path(__file__).with_name("stand_in_watch.py")
    )
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    looks = sys.modules["gradscope.looks.close_looks"] = ModuleType("close_looks")
    looks.script_looks = lambda schedule: None
    del name, spec, looks
sys.argv = ["gradscope", *command["arguments"]]
del command, line, child
main()
