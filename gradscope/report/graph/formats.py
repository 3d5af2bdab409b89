"""The output formats of a graph."""

from pathlib import PurePath
from typing import Literal

from gradscope.errors import GradscopeError

GraphFormat = Literal["text", "dot", "mermaid", "json", "svg", "html"]

ENDINGS: dict[str, GraphFormat] = {
    ".txt": "text",
    ".dot": "dot",
    ".gv": "dot",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".json": "json",
    ".svg": "svg",
    ".html": "html",
    ".htm": "html",
}


def graph_format(chosen: GraphFormat | None, file: str) -> GraphFormat:
    """Return the chosen format, otherwise that of the file's extension; `-` gets text.

    Raises:
        GradscopeError: The ending is that of no format.
    """
    if chosen is not None:
        return chosen
    if file == "-":
        return "text"
    found = ENDINGS.get(PurePath(file).suffix.lower())
    if found is None:
        endings = ", ".join(ending for ending in ENDINGS if ending not in (".gv", ".mermaid"))
        raise GradscopeError(
            f"`{file}` has an unsupported graph format",
            help=f"use one of {endings}, or add --output-format",
        )
    return found
