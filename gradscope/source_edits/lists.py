"""Whether an expression is a list, as far as the code tells."""

import libcst as cst

from gradscope.source_edits.source_file import SourceFile, only

_LIST = cst.List | cst.ListComp | cst.Tuple
_TENSOR = cst.BinaryOperation | cst.Subscript | cst.UnaryOperation


def is_list(source: SourceFile, value: cst.BaseExpression) -> bool | None:
    """Return whether an expression is a list or a tuple; None if the code does not tell.

    A variable is one if its function appends to it, or assigns one to it.
    """
    if isinstance(value, _LIST):
        return True
    if isinstance(value, cst.Call):
        return True if _is_name(value.func, "list", "tuple") else _of_method(source, value)
    if isinstance(value, cst.Name):
        return _is_list_variable(source, value)
    return False if isinstance(value, _TENSOR) else None


def _is_name(node: cst.BaseExpression, *names: str) -> bool:
    return isinstance(node, cst.Name) and node.value in names


def _of_method(source: SourceFile, call: cst.Call) -> bool | None:
    """Return False for a function of torch, or a method such as `x.mean()`."""
    if source.qualified(call.func).startswith("torch."):
        return False
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    return False if isinstance(owner, cst.Call | cst.BinaryOperation) else None


def _is_list_variable(source: SourceFile, name: cst.Name) -> bool | None:
    function = source.around(name, cst.FunctionDef)
    outer = source.module if function is None else function.body
    if any(_appends(one, name.value) for one in source.inside(outer, cst.Call)):
        return True
    own = source.statement_of(name)
    found = {
        _of_target(source, target.target, statement.value, name.value)
        for statement in source.inside(outer, cst.Assign)
        for target in statement.targets
        # `losses = f(losses)` would ask for itself without end.
        if statement is not own
        if name.value in _names(target.target)
    }
    return only(found)


def _names(target: cst.BaseExpression) -> list[str]:
    """Return the variables that a target assigns."""
    parts = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else [target]
    return [one.value for one in parts if isinstance(one, cst.Name)]


def _of_target(
    source: SourceFile, target: cst.BaseExpression, value: cst.BaseExpression, name: str
) -> bool | None:
    """Return whether an assignment makes a variable a list."""
    if not isinstance(target, cst.Tuple):
        return is_list(source, value)
    at = _names(target).index(name)
    if isinstance(value, cst.Tuple) and len(value.elements) == len(target.elements):
        return is_list(source, value.elements[at].value)
    return _returns_list(source, value, at)


def _returns_list(source: SourceFile, value: cst.BaseExpression, at: int) -> bool | None:
    """Return whether a function of the file returns a list at a position."""
    name = value.func if isinstance(value, cst.Call) else None
    function = only(
        one
        for one in source.all(cst.FunctionDef)
        if isinstance(name, cst.Name) and one.name.value == name.value
    )
    returned = () if function is None else source.inside(function.body, cst.Return)
    found = {
        is_list(source, one.value.elements[at].value)
        for one in returned
        if isinstance(one.value, cst.Tuple) and at < len(one.value.elements)
    }
    return only(found)


def _appends(call: cst.Call, name: str) -> bool:
    function = call.func
    if not isinstance(function, cst.Attribute) or not _is_name(function.value, name):
        return False
    return function.attr.value in ("append", "extend", "insert")
