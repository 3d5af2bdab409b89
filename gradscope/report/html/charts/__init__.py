"""What the pictures of a page show, one a file."""
