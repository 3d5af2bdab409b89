"""The whole command line, as help pages, completion and tests use it."""

from gradscope.cli.program import program
from gradscope.cli.shell.commands import COMMANDS

app = program(COMMANDS)
