"""The version of gradscope."""

__version__ = "0.1.0"
