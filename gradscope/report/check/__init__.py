"""Reports of a check: what was found in its targets, and whether it passes."""
