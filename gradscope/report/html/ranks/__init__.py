"""The ranks of a job on a page of HTML."""
