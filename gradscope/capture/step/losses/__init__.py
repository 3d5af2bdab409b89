"""Observers of what losses get: labels of pairs, and the range of their targets."""
