"""Charts of the HTML pages, one per file."""
