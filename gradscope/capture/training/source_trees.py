"""The source of a script, parsed and compiled once."""

import ast
import functools
import linecache
import warnings
from types import CodeType


@functools.lru_cache(maxsize=16)
def tree_of(file: str) -> ast.Module:
    """Return the source of a file, nothing of what cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its compilation has warned already
            return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


@functools.lru_cache(maxsize=64)
def code_at(file: str, line: int) -> CodeType | None:
    """Return the innermost code that a line belongs to, compiled from the source as it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    waiting, found = [code], None
    while waiting:
        one = waiting.pop()
        if any(number == line for *_, number in one.co_lines()):
            found = one
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return found
