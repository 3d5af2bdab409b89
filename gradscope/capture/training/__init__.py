"""Records a running training script: what it does with gradients, step by step."""
