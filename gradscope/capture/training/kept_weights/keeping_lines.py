"""Finds the line that keeps tensors which a later line averages or restores."""

import ast
from collections.abc import Iterator

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of

_COPYING = ("clone", "copy", "empty", "load(", "ones", "rand", "zeros")
"""Words of an expression that makes tensors of its own."""


def keeping_line(line: Line) -> tuple[Line | None, str]:
    """Return the line that assigned what a line uses, and its name as written.

    Args:
        line: A line that averages kept tensors in place, or restores them.

    Returns:
        None if it is not the only assignment without a copy.
    """
    file = line.code.co_filename
    statement = _statement(file, line.number)
    if statement is None:
        return None, ""
    name = _kept(statement)
    # A loop's variable is no place to keep tensors: what it goes over is.
    if isinstance(name, ast.Name):
        name = _iterated(file, line.number, name.id) or name
    if name is None:
        return None, ""
    text = ast.unparse(name)
    found = sorted({one.lineno for one in _assignments(file, text)})
    code = code_at(file, found[0]) if len(found) == 1 else None
    return (None if code is None else Line(code, found[0])), text


def aliasing_line(line: Line) -> tuple[Line | None, str]:
    """Return the line that made one module the same as another, and its name as written.

    Args:
        line: A line that copies the state of one module into another.

    Returns:
        None and "" if the line does not name two modules, as one that restores a module's own
        state; the line itself if no other one assigns one of the two to the other.
    """
    match _statement(line.code.co_filename, line.number):
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=copy, attr="load_state_dict"),
                args=[ast.Call(func=ast.Attribute(value=original, attr="state_dict")), *_],
            )
        ) if ast.unparse(copy) != ast.unparse(original):
            pass
        case _:
            return None, ""
    name, file = ast.unparse(copy), line.code.co_filename
    names = {name, ast.unparse(original)}
    found = [
        one.lineno
        for one in ast.walk(tree_of(file))
        if isinstance(one, ast.Assign)
        and any(ast.unparse(target) in names for target in one.targets)
        and not names.isdisjoint(_same_object(one.value))
    ]
    code = code_at(file, found[0]) if len(found) == 1 else None
    return (line if code is None else Line(code, found[0])), name


def _same_object(value: ast.expr) -> Iterator[str]:
    """Yield what an assigned value shares its parameters with: `q` for `q` and for `copy(q)`."""
    yield ast.unparse(value)
    match value:
        case ast.Call(func=ast.Name(id="copy") | ast.Attribute(attr="copy"), args=[given]):
            yield ast.unparse(given)


def collecting_line(line: Line) -> tuple[Line | None, str]:
    """Return the line that collects gradients themselves, if the file of a line has only one.

    Args:
        line: A line that uses such a collection.
    """
    file = line.code.co_filename
    nodes = (one for one in ast.walk(tree_of(file)) if isinstance(one, ast.expr))
    found = sorted({one.lineno for one in nodes if any(map(_is_gradient, _items(one)))})
    code = code_at(file, found[0]) if len(found) == 1 else None
    return (None if code is None else Line(code, found[0])), ""


def _items(node: ast.AST) -> list[ast.expr]:
    """Return what an expression puts into a list or a dict."""
    match node:
        case ast.ListComp(elt=item) | ast.DictComp(value=item):
            return [item]
        case ast.List(elts=items):
            return items
        case ast.Call(func=ast.Attribute(attr="append"), args=[item]):
            return [item]
    return []


def _is_gradient(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Attribute) and expression.attr == "grad"


def _statement(file: str, number: int) -> ast.stmt | None:
    """Return the innermost statement of a line."""
    found = None
    for one in ast.walk(tree_of(file)):
        # `ast.walk` goes breadth first: the last one found is the innermost.
        if isinstance(one, ast.stmt) and one.lineno <= number <= (one.end_lineno or one.lineno):
            found = one
    return found


def _kept(statement: ast.stmt) -> ast.Name | ast.Attribute | None:
    """Return the variable or attribute that a statement writes to, or restores from."""
    match statement:
        case ast.AugAssign(target=target):
            return _base(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method), args=[first, *_])) if (
            method == "load_state_dict" or method.startswith("_foreach")
        ):
            return _base(first)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
            return _base(owner)
    return None


def _base(expression: ast.expr) -> ast.Name | ast.Attribute | None:
    """Return the variable or attribute in which an expression begins: `self.s` of `self.s[0]`."""
    match expression:
        case ast.Name():
            return expression
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return expression
        case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
            return _base(inner)
        case ast.Call(func=ast.Attribute(value=inner)):
            return _base(inner)
        case ast.Call(args=[first, *_]):
            return _base(first)
    return None


def _iterated(file: str, number: int, variable: str) -> ast.Name | ast.Attribute | None:
    """Return what a loop around a line goes over, if it sets a variable."""
    for loop in ast.walk(tree_of(file)):
        if isinstance(loop, ast.For) and loop.lineno <= number <= (loop.end_lineno or 0):
            match loop.target, loop.iter:
                case ast.Name(id=name), over if name == variable:
                    return _base(over)
                case ast.Tuple(elts=names), ast.Call(func=ast.Name(id="zip"), args=overs):
                    for one, over in zip(names, overs, strict=False):
                        if variable in _names(one):
                            return _base(over)
                case ast.Tuple() as names, over if variable in _names(names):
                    return _base(over)
    return None


def _names(expression: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}


def _assignments(file: str, name: str) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Yield the statements that assign something without a copy to a name, or to its items."""
    for one in ast.walk(tree_of(file)):
        match one:
            case ast.Assign(targets=[target], value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case _:
                continue
        owner = target.value if isinstance(target, ast.Subscript) else target
        text = ast.unparse(value)
        is_empty = isinstance(value, ast.Constant) or text in ("[]", "{}", "dict()", "list()")
        is_copy = any(word in text for word in _COPYING)
        if ast.unparse(owner) == name and not (is_empty or is_copy):
            yield one
