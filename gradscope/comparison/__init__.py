"""What is different between recordings: numbers in, a `Comparison` out; torch-free."""
