"""What the shell shows of the command line: help pages, examples and completion."""
