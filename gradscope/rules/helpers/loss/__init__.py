"""What a loss is made of."""
