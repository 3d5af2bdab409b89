"""Rules on the order of a training loop, and on how gradients add up between its steps."""
