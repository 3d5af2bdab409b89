"""The report of a training run: what each step was made of, curves and layers."""
