"""What a display shows of a training run while it goes on."""
