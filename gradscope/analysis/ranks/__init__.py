"""Facts derived from the ranks of a job together."""
