"""Rules on gradients in half precision."""
