"""Edits of the user's files: finds the code to change by line, and changes it exactly there.

The syntax trees need libcst, the extra `fix`. Everything else does without it.
"""
