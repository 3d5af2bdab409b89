"""Run in place of a command that was forked: `train.py` of its folder, as under python."""

import os
import runpy
import sys

code = 0
sys.argv = ["train.py"]
try:
    runpy.run_path("train.py", run_name="__main__")
except SystemExit as ending:
    code = ending.code or 0
sys.stdout.flush()
os._exit(code)
