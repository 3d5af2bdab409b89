"""How names are written: those of modules and parameters may hold any character."""


def printable(name: str) -> str:
    r"""Return the name with what a terminal would obey or break lines at as escapes: `\x1b`."""
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )
