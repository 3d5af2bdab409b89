"""Turns fenced code in docstrings into literal blocks, which Sphinx reads."""

from sphinx.application import Sphinx

FENCE = "```"


def literal_blocks(lines: list[str]) -> list[str]:
    """Return the lines of a docstring with each fence as an indented literal block."""
    found: list[str] = []
    is_inside = False
    for line in lines:
        if line.strip().startswith(FENCE):
            is_inside = not is_inside
            found += ["::", ""] if is_inside else [""]
        else:
            found.append(f"    {line}" if is_inside else line)
    return found


def convert(
    app: Sphinx, what: str, name: str, documented: object, options: object, lines: list[str]
) -> None:
    """Convert a docstring in place."""
    lines[:] = literal_blocks(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
