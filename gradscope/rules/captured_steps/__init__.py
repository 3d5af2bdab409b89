"""Judging the backward passes of a training run that were watched closely, by one-step rules."""
