"""Captures some backward passes of a running script in detail, as `inspect` captures one."""
