"""Edits that fix findings: proposes them, judges the repaired program, and writes them."""
