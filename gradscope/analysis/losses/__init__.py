"""The losses of a run by step, and those of held-out data beside them."""
