"""The graph of a step: which part of it is drawn, and how."""
