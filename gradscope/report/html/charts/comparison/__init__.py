"""Charts of a comparison: two or more recordings, parameter by parameter."""
