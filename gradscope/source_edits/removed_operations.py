"""Takes an operation out of an expression."""

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
