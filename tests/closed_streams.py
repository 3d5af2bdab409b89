"""Run before a command that was forked: it has no streams, as after `<&- >&- 2>&-` in a shell."""

import os
import sys

for descriptor in range(3):
    os.close(descriptor)
sys.stdin = sys.stdout = sys.stderr = sys.__stdin__ = sys.__stdout__ = sys.__stderr__ = None
