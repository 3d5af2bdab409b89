"""Decides whether a check passes, and which of its findings count."""
