"""The whole command line, as help pages, completion and tests use it."""

from gradscope.cli.program import COMMANDS, program

app = program(COMMANDS)
