"""Rules about attention, positions and padding."""
