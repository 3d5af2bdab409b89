"""A process that has imported modules beforehand, and forks for each command that it reads.

What a command imports costs more than what is tested. The modules are the arguments. A line of JSON
holds the commands to run at once, the answer is a line with their exit codes: see `tests.forked`.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import sys

code = None
"""Exit code of the command, once it is known."""


@atexit.register  # as the first, and so it is called as the last
def leave() -> None:
    """End at once: to take apart all that was imported takes longer than a command."""
    if code is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


for module in sys.argv[1:]:
    importlib.import_module(module)

# Each child that watches would keep the compiler away from the same functions.
if "gradscope.capture.compiler" in sys.modules:
    sys.modules["gradscope.capture.compiler"].unfollow_package()

# A child that ends need not look through all that was imported: that takes longer than a command.
gc.freeze()

for line in sys.stdin:
    children = []
    for command in json.loads(line):  # noqa: B007 - a child goes on with its own
        children.append(os.fork())
        if not children[-1]:
            break
    if not children[-1]:
        break
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.write(1, f"{json.dumps(ended)}\n".encode())
else:
    os._exit(0)

# From here on in the child.
for descriptor, (path, mode) in enumerate(command["streams"]):
    opened = os.open(path, os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, descriptor)
    os.close(opened)
sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
os.chdir(command["folder"])
os.environ.clear()
os.environ.update(command["environment"])
sys.path[0] = command["folder"]
# Commands come so fast that files written anew look the same to Python's cache of bytecode.
sys.dont_write_bytecode = True
if command["first"]:
    runpy.run_path(command["first"])
sys.argv = ["gradscope", *command["arguments"]]
del command, line, children, module
from gradscope.cli import main  # noqa: E402

try:
    main()
    code = 0
except SystemExit as ending:
    code = 0 if ending.code is None else ending.code if isinstance(ending.code, int) else 1
    raise
