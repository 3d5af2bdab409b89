"""Weights, averages and gradients that a script keeps: whether they are copies, and where."""
