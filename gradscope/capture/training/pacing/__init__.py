"""Decides how much of each step is recorded, and recognizes steps that repeat others."""
