"""Formats counts and names for every output."""


def counted(count: int, noun: str) -> str:
    """Return `1 node`, `1,234 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(name: str) -> str:
    r"""Return the name with control characters and line breaks as escapes such as `\x1b`."""
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )
