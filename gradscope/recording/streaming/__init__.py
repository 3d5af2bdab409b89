"""Reads the recording of a long run a few steps at a time."""
