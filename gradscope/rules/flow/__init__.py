"""Rules on the flow of gradients: their size, their composition, and the updates they cause."""
