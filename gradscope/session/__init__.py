"""Inspections and recorded trainings: compose the stages for the Python API and commands."""
