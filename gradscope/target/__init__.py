"""Builds a `Target` of the user's file or objects: model, batch, loss and optimizer."""
