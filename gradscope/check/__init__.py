"""The gate: what of a check's findings counts, and whether it passes."""
