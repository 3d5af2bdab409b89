"""Edits that fix findings of this family; they need libcst."""
