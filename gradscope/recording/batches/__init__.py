"""Batches of a run in the recording."""
