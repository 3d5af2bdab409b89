"""How counts and names are written, wherever they are shown."""


def counted(count: int, noun: str) -> str:
    """Return `1 node`, `1,234 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(name: str) -> str:
    r"""Return the name with what a terminal would obey or break lines at as escapes: `\x1b`."""
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )
