"""A comparison of recordings in each of the output formats."""
