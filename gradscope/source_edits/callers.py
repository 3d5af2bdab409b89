"""Calls in a file: of its functions, and of its classes."""

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


def literal_arguments(
    source: SourceFile, kind: cst.ClassDef, start: cst.FunctionDef
) -> list[dict[str, int]]:
    """Return the whole numbers that each call of a class in its file passes, by parameter.

    Args:
        source: The file.
        kind: The class.
        start: Its `__init__`.

    Returns:
        Nothing if a call unpacks arguments or is repeated, or if the class has subclasses.
    """
    name = kind.name.value
    bases = [one.value for other in source.all(cst.ClassDef) for one in other.bases]
    calls = [
        one
        for one in source.all(cst.Call)
        if isinstance(one.func, cst.Name) and one.func.value == name
    ]
    if any(isinstance(one, cst.Name) and one.value == name for one in bases):
        return []
    if any(one.star for call in calls for one in call.args):
        return []
    return [_numbers(source, call, start) for call in calls]


def _numbers(source: SourceFile, call: cst.Call, start: cst.FunctionDef) -> dict[str, int]:
    parameters = start.params.params[1:]
    given = {one.name.value: one.default for one in (*parameters, *start.params.kwonly_params)}
    plain = [one.value for one in call.args if one.keyword is None]
    for parameter, value in zip(parameters, plain, strict=False):
        given[parameter.name.value] = value
    given.update({one.keyword.value: one.value for one in call.args if one.keyword is not None})
    assigned = {
        node.value
        for target in source.inside(start.body, cst.AssignTarget)
        for node in source.inside(target.target, cst.Name)
    }
    return {
        name: value.evaluated_value
        for name, value in given.items()
        if isinstance(value, cst.Integer) and name not in assigned
    }
