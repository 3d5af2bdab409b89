"""Compares recordings: numbers in, a `Comparison` out; torch-free."""
