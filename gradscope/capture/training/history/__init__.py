"""Finds what carries tensors with their history from one step to the next."""
