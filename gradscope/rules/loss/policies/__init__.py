"""Rules about the losses of policies."""
