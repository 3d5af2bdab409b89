"""From a line outwards: the statements that call the function of which it is a part."""

from collections.abc import Iterator

import libcst as cst

from gradscope.source_edits.source_file import SourceFile, only


def statements_above(source: SourceFile, line: int) -> Iterator[cst.SimpleStatementLine]:
    """Yield the statement of a line, then the only one that calls its function, and so on."""
    found = [one for one in source.statements(line) if isinstance(one, cst.BaseSmallStatement)]
    statement = only(found)
    for one in () if statement is None else statements_calling(source, statement):
        own = source.parent(one)
        # A statement that shares its line is no line that could be moved.
        if isinstance(own, cst.SimpleStatementLine) and len(own.body) == 1:
            yield own


def statements_that_only(
    source: SourceFile, statement: cst.BaseSmallStatement
) -> Iterator[cst.BaseSmallStatement]:
    """Yield a statement, then the only one that calls the function of which it is all, and so on.

    Moving one of them moves nothing else.
    """
    function = source.around(statement, cst.FunctionDef, cst.Lambda)
    yield statement
    if isinstance(function, cst.FunctionDef) and _is_all_of(source, function, statement):
        caller = _caller(source, statement)
        if isinstance(caller, cst.Expr) and caller is not statement:
            yield from statements_that_only(source, caller)


def function_that_returns(
    source: SourceFile, value: cst.BaseExpression
) -> cst.FunctionDef | cst.Lambda | None:
    """Return the function that does nothing but return an expression; None if there is none."""
    outer = source.parent(value)
    if isinstance(outer, cst.Lambda):
        return outer if outer.body is value else None
    function = source.around(value, cst.FunctionDef)
    if function is None or not isinstance(outer, cst.Return):
        return None
    return function if _is_all_of(source, function, outer) else None


def calls_of(source: SourceFile, function: cst.FunctionDef | cst.Lambda) -> Iterator[cst.Call]:
    """Yield the calls of a function by its name; none of one without a name."""
    if isinstance(function, cst.FunctionDef):
        name = function.name.value
        yield from (one for one in source.all(cst.Call) if _is_called(one.func, name))


def _is_all_of(
    source: SourceFile, function: cst.FunctionDef, statement: cst.BaseSmallStatement
) -> bool:
    """Return whether a function does nothing but one statement, apart from its docstring."""
    own = [
        one
        for line in source.inside(function.body, cst.SimpleStatementLine, cst.SimpleStatementSuite)
        for one in line.body
        if not (isinstance(one, cst.Expr) and isinstance(one.value, cst.SimpleString))
    ]
    return len(own) == 1 and own[0] is statement


def statements_calling(
    source: SourceFile, statement: cst.BaseSmallStatement
) -> Iterator[cst.BaseSmallStatement]:
    """Yield a statement, then the only one that calls its function, and so on."""
    # A function may call itself.
    seen = set[int]()
    node: cst.BaseSmallStatement | None = statement
    while node is not None and id(node) not in seen:
        seen.add(id(node))
        yield node
        node = _caller(source, node)


def _caller(source: SourceFile, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """Return the only statement that calls the function around a node."""
    function = source.around(node, cst.FunctionDef, cst.Lambda)
    if not isinstance(function, cst.FunctionDef):
        return None
    kind = source.around(function, cst.ClassDef, cst.FunctionDef)
    name = function.name.value
    # A class is called by its own name.
    if name == "__init__" and isinstance(kind, cst.ClassDef):
        name = kind.name.value
    call = only(one for one in source.all(cst.Call) if _is_called(one.func, name))
    return None if call is None else source.statement_of(call)


def _is_called(function: cst.BaseExpression, name: str) -> bool:
    last = function.attr if isinstance(function, cst.Attribute) else function
    return isinstance(last, cst.Name) and last.value == name
