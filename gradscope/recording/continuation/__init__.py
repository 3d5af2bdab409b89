"""One recording of a training that was resumed from a checkpoint."""
