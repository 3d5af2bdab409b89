"""Run before a command that was forked: its streams encode as a terminal of few characters."""

import sys

sys.stdout.reconfigure(encoding="ascii")
sys.stderr.reconfigure(encoding="ascii")
