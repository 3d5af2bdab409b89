"""The report on logits of attention and outputs, and on experts."""
