"""Rules on how gradients flow: their size, what they are made of, and how far they move weights."""
