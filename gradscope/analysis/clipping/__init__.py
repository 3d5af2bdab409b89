"""What clipping does to the gradients of a run, or of a target's batches."""
