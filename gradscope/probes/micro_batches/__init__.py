"""Splits a batch into parts, and compares their gradients with those of the whole batch."""
