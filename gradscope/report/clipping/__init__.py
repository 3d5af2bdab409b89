"""The report on clipping: the effect of clips, and of other limits."""
