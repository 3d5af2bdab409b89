"""Takes operations out of expressions, and arguments out of calls."""

from collections.abc import Sequence

import libcst as cst

from gradscope.source_edits.callers import calls_of, function_that_returns
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only


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
