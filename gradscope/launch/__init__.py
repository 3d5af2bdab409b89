"""Runs a script or module as python would, and calls back once it has imported torch."""
