"""Reports as JSON: each object is declared once, as a type; values and schemas follow from it."""
