"""Experiments on a snapshot of the model, undone afterwards bit for bit."""
