"""One renderer a format: each writes the blocks of any document."""
