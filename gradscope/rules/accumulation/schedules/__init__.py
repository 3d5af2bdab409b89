"""Mistakes with schedules of learning rates."""
