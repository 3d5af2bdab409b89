"""Gradients that are exactly zero: where they become so, and why."""
