"""Rules on what autograd refuses, or is told wrongly."""
