"""What the ranks of a job tell together."""
