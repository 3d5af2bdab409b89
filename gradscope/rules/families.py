"""The families of rules, by the prefix of their codes."""

FAMILIES = {
    "GS1": "flow",
    "GS2": "reach",
    "GS3": "accumulation",
    "GS4": "clipping",
    "GS5": "autograd",
    "GS6": "precision",
    "GS7": "loss",
    "GS8": "ranks",
    "GS9": "tool",
}
"""What a family is called, as a selector too."""


def family_of(code: str) -> str:
    """Return the name of a code's family."""
    return FAMILIES[code[:3]]
