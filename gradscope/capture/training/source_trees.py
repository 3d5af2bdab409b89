"""The source of a script, parsed and compiled once."""

import ast
import functools
import linecache
from types import CodeType

from gradscope.capture.parsing import compiled, parsed


@functools.lru_cache(maxsize=16)
def tree_of(file: str) -> ast.Module:
    """Return the source of a file, nothing of what cannot be read."""
    return parsed("".join(linecache.getlines(file))) or ast.Module(body=[], type_ignores=[])


@functools.lru_cache(maxsize=64)
def code_at(file: str, line: int) -> CodeType | None:
    """Return the innermost code that a line belongs to, compiled from the source as it is."""
    code = compiled("".join(linecache.getlines(file)), file)
    if code is None:
        return None
    waiting, found = [code], None
    while waiting:
        one = waiting.pop()
        if any(number == line for *_, number in one.co_lines()):
            found = one
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return found
