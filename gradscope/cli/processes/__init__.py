"""Runs targets in processes of their own, several at a time, and takes back what they saw."""
