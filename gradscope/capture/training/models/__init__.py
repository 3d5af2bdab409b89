"""Models of a run: their records, their modes, and which of them is running."""
