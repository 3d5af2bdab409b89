"""The source code of the user: lines, statements, and what was defined where."""
