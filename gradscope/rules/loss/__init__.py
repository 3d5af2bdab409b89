"""Rules on how a loss is written."""
