"""Repeats the forward, and observes every operation in it."""
