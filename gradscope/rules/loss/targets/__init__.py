"""Mistakes with the targets of a loss, their padding, and the masks of attention for it."""
