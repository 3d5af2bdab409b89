"""Observes what a process of a distributed job does with the other ranks. It starts no collective."""
