"""How many there are of something, in words."""


def counted(count: int, noun: str) -> str:
    """Return `1 node`, `1,234 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
