"""Keeps the recording of a long run within its limit: old steps become summaries."""
