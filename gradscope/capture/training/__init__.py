"""Watches a training script as it is: what it does with gradients, step by step."""
