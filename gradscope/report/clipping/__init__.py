"""The report on clipping: what it does, and what a limit would do."""
