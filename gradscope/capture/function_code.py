"""The classes of custom functions, and the lines of their backward."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

from torch.autograd import Function
from torch.autograd.function import BackwardCFunction

from gradscope.capture.lines import Line


def function_of(node: object) -> type[Function] | None:
    """Return the class whose `backward` a node runs, None for operations of torch's."""
    if not isinstance(node, BackwardCFunction):
        return None
    function = getattr(type(node), "_forward_cls", None)
    return function if isinstance(function, type) and issubclass(function, Function) else None


def backward_code(function: type[Function]) -> Line | None:
    """Return the line on which a function's backward returns; else the one that defines it."""
    own = function.backward if function.backward is not Function.backward else function.vjp
    code = getattr(inspect.unwrap(own), "__code__", None)
    if code is None:
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):  # typed in, or made by a program
        return Line(code, code.co_firstlineno)
    returns = [node.lineno for node in _own_nodes(tree.body[0]) if isinstance(node, ast.Return)]
    return Line(code, first + max(returns) - 1 if returns else code.co_firstlineno)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what is inside a function, and not inside another one that it defines."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _own_nodes(node)
