"""Rules on what gradients reach: the model's parameters, and the optimizer's."""
