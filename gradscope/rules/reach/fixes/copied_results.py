"""Uses results themselves instead of tensors that are made anew from their numbers."""

from collections.abc import Iterator

import libcst as cst

from gradscope.source_edits.source_file import (
    Changes,
    Replacement,
    SourceFile,
    in_place_of,
    method_call,
    only,
)

_TENSOR = "torch.tensor"
_PARAMETER = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


def uncopied(source: SourceFile, line: int) -> Iterator[list[Changes]]:
    """Yield for each `torch.tensor(x)` on a line the changes to `torch.stack(x)` and `x`."""
    for call in source.on_line(line, cst.Call):
        if source.qualified(call.func) == _TENSOR:
            yield list(_of_tensor(source, call))


def _of_tensor(source: SourceFile, call: cst.Call) -> Iterator[Changes]:
    """Yield `torch.stack` for a list, otherwise the tensor; both if it may be either."""
    value = _copied(call)
    if value is None:
        return
    listed = _is_list(source, value)
    if listed is not True:
        yield {call: in_place_of(source, call, value)}
    if listed is not False and isinstance(call.func, cst.Attribute):
        stack = call.func.with_changes(attr=cst.Name("stack"))
        yield {call: call.with_changes(func=stack, args=[_as_only(call.args[0], call)])}


def _copied(call: cst.Call) -> cst.BaseExpression | None:
    """Return `x` of `torch.tensor(x)`, which may have `requires_grad` beside it."""
    first = call.args[0] if call.args else None
    if first is None or first.star or first.keyword is not None:
        return None
    others = [one.keyword.value for one in call.args[1:] if one.keyword is not None]
    is_plain = len(others) == len(call.args) - 1 and set(others) <= {"requires_grad"}
    return first.value if is_plain else None


def _as_only(argument: cst.Arg, call: cst.Call) -> cst.Arg:
    """Return an argument without the comma that only its successors need."""
    if len(call.args) == 1:
        return argument
    return argument.with_changes(comma=cst.MaybeSentinel.DEFAULT)


def unwrapped(source: SourceFile, line: int) -> Iterator[list[Changes]]:
    """Yield the change of `nn.Parameter(x)` to `x` for all of a line that wrap a variable.

    Nothing if another one on the line wraps something else, such as new values.
    """
    calls = [
        one for one in source.on_line(line, cst.Call) if source.qualified(one.func) in _PARAMETER
    ]
    is_plain = all(len(one.args) == 1 and not one.args[0].star for one in calls)
    are_variables = all(isinstance(one.args[0].value, cst.Name) for one in calls if one.args)
    if calls and is_plain and (len(calls) == 1 or are_variables):
        yield [{one: in_place_of(source, one, one.args[0].value) for one in calls}]


def unlisted(source: SourceFile, line: int) -> Iterator[list[Changes]]:
    """Yield the change of `torch.tensor(x.tolist())` to `x`."""
    for call in source.on_line(line, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "tolist":
            copy = _copy_around(source, call)
            if copy is not None and _copied(copy) is call:
                yield [{copy: in_place_of(source, copy, call.func.value)}]
            else:
                yield []


_ARRAYS = ("torch.from_numpy", "torch.tensor", "torch.as_tensor")
_SAME_FUNCTIONS = frozenset({"abs", "cos", "exp", "log", "log1p", "sin", "sqrt", "square", "tanh"})
"""Functions of one argument by the same name and meaning in NumPy and torch."""


def unconverted(source: SourceFile, array: cst.Call) -> Changes:
    """Return the change of a tensor's way through NumPy and back to torch; none if unclear.

    `torch.from_numpy(np.exp(x.detach().numpy()))` becomes `torch.exp(x)`. Nothing else may be done
    with the array: indices, other functions and other types have no sure counterpart.

    Args:
        source: The file.
        array: The call of `detach()` or `numpy()`.
    """
    outer: cst.CSTNode | None = array
    while isinstance(outer, cst.BaseExpression | cst.Arg):
        if isinstance(outer, cst.Call) and source.qualified(outer.func) in _ARRAYS:
            break
        outer = source.parent(outer)
    # `torch.tensor(array, dtype=…)` converts the numbers as well.
    if not isinstance(outer, cst.Call) or len(outer.args) != 1 or outer.args[0].keyword:
        return {}
    value = _in_torch(source, outer.args[0].value, outer.func)
    return {} if value is None else {outer: in_place_of(source, outer, value)}


def _in_torch(
    source: SourceFile, value: cst.BaseExpression, converter: cst.BaseExpression
) -> cst.BaseExpression | None:
    """Return an array's expression with torch's functions; None if there is no sure counterpart."""
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return None
    name = value.func.attr.value
    if name == "numpy" and not value.args:
        return _without_detach(value.func.value)
    is_known = source.qualified(value.func) == f"numpy.{name}" and name in _SAME_FUNCTIONS
    is_plain = len(value.args) == 1 and not value.args[0].star and not value.args[0].keyword
    if not (is_known and is_plain and isinstance(converter, cst.Attribute)):
        return None
    inner = _in_torch(source, value.args[0].value, converter)
    if inner is None:
        return None
    # The converter is written as the file names torch, and so is the function.
    function = converter.with_changes(attr=cst.Name(name))
    return value.with_changes(func=function, args=[value.args[0].with_changes(value=inner)])


def _without_detach(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return `x` of `x.detach()`; moves to the CPU stay."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and not value.args:
        inner = value.func.value
        if value.func.attr.value == "detach":
            return _without_detach(inner)
        shorter = _without_detach(inner)
        return value.with_changes(func=value.func.with_changes(value=shorter))
    return value


def unread(source: SourceFile, line: int, function: str = "") -> Iterator[list[Changes]]:
    """Yield the change of `x.item()`, or of a function such as `float(x)`, to `x`.

    A `torch.tensor([…])` of such numbers becomes a `torch.stack([…])` of tensors of no dimension.
    """
    read = {id(one): value for one, value in _reads(source, line, function)}
    calls = [one for one in source.on_line(line, cst.Call) if id(one) in read]
    copies = {id(copy): copy for one in calls if (copy := _copy_around(source, one)) is not None}
    for copy in copies.values():
        items = _items(_copied(copy))
        if not items or not all(id(one) in read for one in items):
            # An edit without changes stands for a cut that none removes: the line has it all the
            # same.
            yield []
            continue
        # Numbers have no dimension, but `torch.stack` would keep those of size 1.
        changes: dict[cst.CSTNode, Replacement] = {
            one: method_call(read[id(one)], "squeeze") for one in items
        }
        if len(copy.args) == 1 and isinstance(copy.func, cst.Attribute):
            changes[copy.func.attr] = cst.Name("stack")
            yield [changes]
    for one in calls:
        if _copy_around(source, one) is None:
            yield [{one: in_place_of(source, one, read[id(one)])}]


def _reads(
    source: SourceFile, line: int, function: str
) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """Yield the calls on a line that return a tensor's number, and the tensor of each."""
    for call in source.on_line(line, cst.Call):
        if isinstance(call.func, cst.Attribute) and not function:
            yield from ((call, call.func.value),) if _is_item(call.func, call) else ()
        elif isinstance(call.func, cst.Name) and call.func.value == function:
            is_plain = len(call.args) == 1 and not call.args[0].star and not call.args[0].keyword
            yield from ((call, call.args[0].value),) if is_plain else ()


def _is_item(function: cst.Attribute, call: cst.Call) -> bool:
    return function.attr.value == "item" and not call.args


def _copy_around(source: SourceFile, node: cst.CSTNode) -> cst.Call | None:
    """Return the `torch.tensor(…)` of which an expression is an argument, or an element of one."""
    outer = source.parent(node)
    while isinstance(outer, cst.Arg | cst.Element | cst.List | cst.ListComp | cst.Tuple):
        outer = source.parent(outer)
    is_copy = isinstance(outer, cst.Call) and source.qualified(outer.func) == _TENSOR
    return outer if is_copy and isinstance(outer, cst.Call) else None


def _items(value: cst.BaseExpression | None) -> list[cst.BaseExpression]:
    """Return what a list holds, or what a comprehension repeats."""
    if isinstance(value, cst.ListComp):
        return [value.elt]
    if isinstance(value, cst.List | cst.Tuple):
        return [one.value for one in value.elements]
    return []


def with_graph(source: SourceFile, line: int) -> Iterator[list[Changes]]:
    """Yield the change that keeps the graph of each `torch.autograd.grad` on a line."""
    kept = cst.ensure_type(cst.parse_expression("f(create_graph=True)"), cst.Call).args[0]
    for call in source.on_line(line, cst.Call):
        if source.qualified(call.func) == "torch.autograd.grad":
            names = [one.keyword.value for one in call.args if one.keyword is not None]
            is_plain = not any(one.star for one in call.args) and "create_graph" not in names
            yield [{call: call.with_changes(args=[*call.args, kept])}] if is_plain else []


_LIST = cst.List | cst.ListComp | cst.Tuple
_SINGLE = cst.BinaryOperation | cst.Subscript | cst.UnaryOperation


def _is_list(source: SourceFile, value: cst.BaseExpression) -> bool | None:
    """Return whether an expression is a list or a tuple; None if the code does not tell.

    A variable is one if its function appends to it, or assigns one to it.
    """
    if isinstance(value, _LIST):
        return True
    if isinstance(value, cst.Call):
        return True if _is_name(value.func, "list", "tuple") else _of_method(source, value)
    if isinstance(value, cst.Name):
        return _is_list_variable(source, value)
    return False if isinstance(value, _SINGLE) else None


def _is_name(node: cst.BaseExpression, *names: str) -> bool:
    return isinstance(node, cst.Name) and node.value in names


def _of_method(source: SourceFile, call: cst.Call) -> bool | None:
    """Return False for a function of torch, or a method such as `x.mean()`."""
    if source.qualified(call.func).startswith("torch."):
        return False
    # A method of a variable may be one of a list, as `copy()`.
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
        return _is_list(source, value)
    at = _names(target).index(name)
    if isinstance(value, cst.Tuple) and len(value.elements) == len(target.elements):
        return _is_list(source, value.elements[at].value)
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
        _is_list(source, one.value.elements[at].value)
        for one in returned
        if isinstance(one.value, cst.Tuple) and at < len(one.value.elements)
    }
    return only(found)


def _appends(call: cst.Call, name: str) -> bool:
    function = call.func
    if not isinstance(function, cst.Attribute) or not _is_name(function.value, name):
        return False
    return function.attr.value in ("append", "extend", "insert")
