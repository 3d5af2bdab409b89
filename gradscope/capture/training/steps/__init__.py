"""Records the steps of optimizers, and those that a script makes by hand."""
