"""Observes sequences: their tokens, their padding, their masks and their positions."""
