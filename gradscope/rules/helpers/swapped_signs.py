"""Straight-through estimators whose signs are swapped, by the source of their line."""

import ast
from collections.abc import Iterator

from gradscope.recording.records import Site


def turned_by(site: Site | None) -> str | None:
    """Return the term that a line subtracts, and adds again detached, next to another term.

    The value is that of the other term alone, as of a straight-through estimator, whose gradient
    goes to the soft term: with the opposite sign here.
    """
    try:
        tree = ast.parse("" if site is None else site.source)
    # A line of a statement of several lines may be no code by itself.
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        terms = list(_terms(node, 1)) if isinstance(node, ast.BinOp) else []
        added = {ast.dump(one) for term, sign in terms if sign > 0 and (one := _detached(term))}
        names = [ast.unparse(term) for term, sign in terms if sign < 0 and ast.dump(term) in added]
        # Of two terms, `x.detach() - x` is always zero, and no estimator.
        if names and len(terms) > 2:
            return names[0]
    return None


def _terms(node: ast.expr, sign: int) -> Iterator[tuple[ast.expr, int]]:
    """Yield the terms of a sum with their signs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign if isinstance(node.op, ast.Add) else -sign)
    else:
        yield node, sign


def _detached(term: ast.expr) -> ast.expr | None:
    """Return the argument of a term's detach, None without one."""
    if isinstance(term, ast.Call) and not term.args and isinstance(term.func, ast.Attribute):
        return term.func.value if term.func.attr == "detach" else None
    is_data = isinstance(term, ast.Attribute) and term.attr == "data"
    return term.value if is_data and isinstance(term, ast.Attribute) else None
