"""One inspection, one watched training: composes the stages, and is what the Python API calls."""
