"""Experiments on a snapshot of the model, which is restored bit for bit."""
