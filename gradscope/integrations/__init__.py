"""Ties to other people's tools, over the sessions.

It is imported before pytest rewrites assertions; there are none in this file: PYTEST_DONT_REWRITE
"""
