"""Finds the calls of functions and classes in a file, and takes operations out of expressions."""

from collections.abc import Iterator, Sequence

import libcst as cst

from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only


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


def without_operation(
    source: SourceFile, whole: cst.BaseExpression, value: cst.BaseExpression
) -> Changes:
    """Return the change of an operation to its input.

    A function that does nothing else keeps its name's promise to other callers: its only call is
    replaced, and there is no change if it has several.

    Args:
        source: The file.
        whole: The operation.
        value: Its input.
    """
    function = function_that_returns(source, whole)
    if function is None or not _is_parameter(function, value):
        return {whole: in_place_of(source, whole, value)}
    call = only(calls_of(source, function))
    if call is None or len(call.args) != 1 or call.args[0].keyword or call.args[0].star:
        return {}
    return {call: in_place_of(source, call, call.args[0].value)}


def _is_parameter(function: cst.FunctionDef | cst.Lambda, value: cst.BaseExpression) -> bool:
    given = [one.name.value for one in function.params.params]
    return isinstance(value, cst.Name) and value.value in given


def without_argument(arguments: Sequence[cst.Arg], removed: cst.Arg) -> list[cst.Arg]:
    """Return arguments without one of them; the layout of the end and other comments stay."""
    position = next(at for at, one in enumerate(arguments) if one is removed)
    left = [*arguments[:position], *arguments[position + 1 :]]
    if left and position == len(left):
        left[-1] = _as_last(left[-1], removed)
    return left


def _as_last(argument: cst.Arg, removed: cst.Arg) -> cst.Arg:
    """Return an argument that ends a list as the removed one did."""
    own = argument.comma.whitespace_after if isinstance(argument.comma, cst.Comma) else None
    if isinstance(removed.comma, cst.Comma):
        end = _closing(own, removed.comma.whitespace_after)
        return argument.with_changes(comma=removed.comma.with_changes(whitespace_after=end))
    end = _closing(own, removed.whitespace_after_arg)
    return argument.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=end)


def _closing(
    own: cst.BaseParenthesizableWhitespace | None, end: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """Return the space before the closing parenthesis, with the argument's own comment."""
    if not isinstance(end, cst.ParenthesizedWhitespace):
        return end
    if isinstance(own, cst.ParenthesizedWhitespace):
        return end.with_changes(first_line=own.first_line)
    no_comment = end.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    return end.with_changes(first_line=no_comment)
