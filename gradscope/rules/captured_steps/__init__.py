"""Judges the captured steps of a training run by the rules on one step."""
