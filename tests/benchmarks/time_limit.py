"""Ends the process that runs this after a time; a command that is forked runs it first."""

import signal

SECONDS = 110

signal.alarm(SECONDS)
