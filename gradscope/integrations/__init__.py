"""Integrations with other tools, on top of the sessions.

pytest imports it before it rewrites assertions. This file has none: PYTEST_DONT_REWRITE
"""
