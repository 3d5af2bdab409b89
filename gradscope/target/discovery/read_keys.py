"""Finds the keys of a dictionary that a model's forward reads."""

import ast
import inspect
import textwrap

from torch import nn


def keys_read_by(model: nn.Module, argument: str) -> tuple[str, ...]:
    """Return the keys in `argument["key"]`, in the order of the source.

    Args:
        model: Its forward is read, not run.
        argument: Name of the argument of forward.
    """
    try:
        source = textwrap.dedent(inspect.getsource(type(model).forward))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return ()
    found = [
        (node.lineno, node.col_offset, node.slice.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == argument
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ]
    return tuple(dict.fromkeys(key for *_, key in sorted(found)))
