"""Rules on clipping gradients, judged from a run."""
