"""Finds the model, the batch and the loss in the user's file."""
