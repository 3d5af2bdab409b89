"""Rules about the ranks of a distributed job."""
