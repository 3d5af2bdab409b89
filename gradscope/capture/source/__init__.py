"""The user's source code: lines, statements and definitions."""
