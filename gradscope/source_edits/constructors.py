"""The calls in a file that make objects of a class."""

import libcst as cst

from gradscope.source_edits.source_file import SourceFile


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
