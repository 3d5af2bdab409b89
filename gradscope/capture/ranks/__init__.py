"""Observes what a rank of a distributed job does with others, and starts no collective."""
