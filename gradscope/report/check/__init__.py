"""Reports of a check: the findings in its targets, and whether it passes."""
