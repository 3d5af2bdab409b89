"""The shell's side of the command line: commands by name, plain lines, help pages, completion."""
