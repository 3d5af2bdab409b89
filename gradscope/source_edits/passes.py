"""The backward passes and steps of a training loop, as code spells them."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.variables import names_in, value_of

Loop = cst.For | cst.While


def call_on(
    source: SourceFile, site: Site | RelatedLocation | None, method: str
) -> cst.Call | None:
    """Return the only call of a method on a line; None if the line is of another file."""
    if site is None or site.file != source.path:
        return None
    return only(
        call
        for call in source.on_line(site.line, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == method
    )


def loop_around(source: SourceFile, node: cst.CSTNode) -> Loop | None:
    """Return the innermost loop around a node in its function."""
    found = source.around(node, cst.For, cst.While, cst.FunctionDef, cst.Lambda, cst.ClassDef)
    return found if isinstance(found, cst.For | cst.While) else None


def loss_of(backward: cst.Call) -> cst.BaseExpression | None:
    """Return the loss of `loss.backward()` or `scaler.scale(loss).backward()`."""
    if not isinstance(backward.func, cst.Attribute) or any(
        one.keyword is None for one in backward.args
    ):
        return None
    owner = backward.func.value
    function = owner.func if isinstance(owner, cst.Call) else None
    is_scaled = isinstance(function, cst.Attribute) and function.attr.value == "scale"
    if not is_scaled or not isinstance(owner, cst.Call):
        return owner
    return owner.args[0].value if len(owner.args) == 1 and not owner.args[0].star else None


def window_of(
    source: SourceFile, backward: cst.Call, step: cst.Call, passes: int
) -> cst.BaseExpression | None:
    """Return the expression for the number of backward passes of a step.

    Args:
        source: The file.
        backward: The only backward.
        step: The step that uses its gradients.
        passes: The number of passes that were observed.

    Returns:
        None if the code does not say what number it is.
    """
    loop = loop_around(source, backward)
    if loop is None:
        function = source.around(backward, cst.FunctionDef)
        is_alone = function is not None and function is source.around(step, cst.FunctionDef)
        return _of_condition(source, function, step, passes) if function and is_alone else None
    if not any(one is step for one in source.inside(loop.body, cst.Call)):
        return _of_inner_loop(source, loop, passes)
    return _of_condition(source, loop, step, passes)


def _of_inner_loop(source: SourceFile, loop: Loop, passes: int) -> cst.BaseExpression | None:
    """Return how often a loop repeats."""
    # A loop that leaves out items makes fewer passes than it has items.
    if isinstance(loop, cst.While) or list(source.inside(loop.body, cst.Break, cst.Continue)):
        return None
    return _length(source, loop.iter, passes)


def _length(
    source: SourceFile, items: cst.BaseExpression, passes: int
) -> cst.BaseExpression | None:
    """Return the number of items that an expression yields."""
    if isinstance(items, cst.List | cst.Tuple):
        is_plain = not any(isinstance(one, cst.StarredElement) for one in items.elements)
        return cst.Integer(str(passes)) if is_plain and len(items.elements) == passes else None
    if isinstance(items, cst.Name):
        return _length_of_variable(source, items)
    if not isinstance(items, cst.Call) or not items.args or items.args[0].star:
        return None
    first = items.args[0].value
    name = items.func.attr if isinstance(items.func, cst.Attribute) else items.func
    match name.value if isinstance(name, cst.Name) else "":
        case "range" if len(items.args) == 1:
            return _number(source, first, passes, is_certain=True)
        case "enumerate" | "zip":
            return _length(source, first, passes)
        case "chunk" | "tensor_split":
            # The function takes the tensor first, the method only the number.
            is_function = source.qualified(items.func).startswith("torch.")
            number = items.args[1].value if is_function and len(items.args) > 1 else first
            return _number(source, number, passes, is_certain=True)
        case _:
            return None


def last_pass(source: SourceFile, loop: cst.For, step: cst.Call) -> str | None:
    """Return code that is true in the last pass before a step, at the start of a loop's body.

    None if neither the loop nor the condition of the step tells.
    """
    if not any(one is step for one in source.inside(loop.body, cst.Call)):
        return _last_item(source, loop)
    test = only(_tests_around(source, step, loop))
    if test is None or not any(True for _ in source.inside(test, cst.Modulo)):
        return None
    own, known = names_in(source, test), names_in(source, loop.target)
    targets = [
        *(one.target for one in source.inside(loop.body, cst.AssignTarget)),
        *(one.target for one in source.inside(loop.body, cst.AugAssign)),
        *(one.target for one in source.inside(loop.body, cst.NamedExpr)),
    ]
    assigned = {name.value for target in targets for name in source.inside(target, cst.Name)}
    is_known = bool(own & known) and not own & assigned
    return source.code(test) if is_known else None


def _last_item(source: SourceFile, loop: cst.For) -> str | None:
    """Return code that is true for the last item of a loop that counts its items."""
    items = loop.iter
    is_whole = not any(True for _ in source.inside(loop.body, cst.Break, cst.Continue))
    if not is_whole or not isinstance(items, cst.Call) or len(items.args) != 1:
        return None
    given = items.args[0].value
    if source.code(items.func) == "range" and isinstance(loop.target, cst.Name):
        is_plain = isinstance(given, cst.Integer | cst.Name | cst.Attribute)
        if isinstance(given, cst.Integer):
            return f"{loop.target.value} == {given.evaluated_value - 1}"
        return f"{loop.target.value} == {source.code(given)} - 1" if is_plain else None
    if source.code(items.func) == "enumerate" and isinstance(loop.target, cst.Tuple):
        index = loop.target.elements[0].value
        length = _length_of_variable(source, given) if isinstance(given, cst.Name) else None
        if isinstance(index, cst.Name) and length is not None:
            return f"{index.value} == {source.code(length)} - 1"
    return None


def is_repeatable(source: SourceFile, items: cst.BaseExpression) -> bool:
    """Return whether an expression yields the same items when it is evaluated again."""
    if isinstance(items, cst.List | cst.Tuple):
        return True
    if isinstance(items, cst.Name):
        return _length_of_variable(source, items) is not None or _is_iterated_twice(source, items)
    if not isinstance(items, cst.Call):
        return False
    name = items.func.attr if isinstance(items.func, cst.Attribute) else items.func
    match name.value if isinstance(name, cst.Name) else "":
        case "enumerate" | "zip":
            return all(is_repeatable(source, one.value) for one in items.args if not one.keyword)
        case "chunk" | "split" | "tensor_split":
            return True
        case _:
            return False


def _is_iterated_twice(source: SourceFile, name: cst.Name) -> bool:
    """Return whether the block of a loop over a variable iterates it before, too."""
    loop = source.parent(name)
    block = source.parent(loop) if isinstance(loop, cst.For) and loop.iter is name else None
    if not isinstance(block, cst.IndentedBlock) or not isinstance(loop, cst.For):
        return False
    before = block.body[: block.body.index(loop)]
    return any(
        isinstance(one.iter, cst.Name) and one.iter.value == name.value
        for statement in before
        for one in source.inside(statement, cst.CompFor)
    )


def is_number(source: SourceFile, node: cst.BaseExpression, number: int) -> bool:
    """Return whether an expression is known, or named, to have a value; `len(…)` counts too."""
    is_length = isinstance(node, cst.Call) and source.code(node.func) == "len"
    return is_length or _number(source, node, number, is_certain=True) is not None


def _length_of_variable(source: SourceFile, name: cst.Name) -> cst.BaseExpression | None:
    value = value_of(source, name)
    is_list = isinstance(value, cst.List | cst.ListComp | cst.Tuple)
    function = value.func if isinstance(value, cst.Call) else None
    attribute = function.attr if isinstance(function, cst.Attribute) else function
    makes_list = isinstance(attribute, cst.Name) and attribute.value in (
        "chunk", "list", "split", "tensor_split", "tuple",
    )  # fmt: skip
    return cst.parse_expression(f"len({name.value})") if is_list or makes_list else None


def _of_condition(
    source: SourceFile, outer: Loop | cst.FunctionDef, step: cst.Call, passes: int
) -> cst.BaseExpression | None:
    """Return the number in the condition of a step, as `k` of `(i + 1) % k == 0`."""
    tests = list(_tests_around(source, step, outer)) or list(_tests_that_skip(source, outer))
    found: dict[str, cst.BaseExpression] = {}
    for test in tests:
        for one in _numbers(source, test, passes):
            found[source.code(one)] = one
    return only(found.values())


def _tests_around(
    source: SourceFile, node: cst.CSTNode, outermost: Loop | cst.FunctionDef
) -> Iterator[cst.CSTNode]:
    """Yield the tests of the branches that a node is in."""
    inner: cst.CSTNode = node
    while inner is not outermost:
        outer = source.parent(inner)
        if isinstance(outer, cst.If) and outer.body is inner:
            yield outer.test
        inner = outer


def _tests_that_skip(source: SourceFile, outer: Loop | cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yield the tests of `if …: continue` in a loop, or of `if …: return` in a function."""
    kind = cst.Return if isinstance(outer, cst.FunctionDef) else cst.Continue
    for branch in source.inside(outer.body, cst.If):
        if any(True for _ in source.inside(branch.body, kind)):
            yield branch.test


def _numbers(source: SourceFile, test: cst.CSTNode, passes: int) -> Iterator[cst.BaseExpression]:
    for operation in source.inside(test, cst.BinaryOperation):
        if isinstance(operation.operator, cst.Modulo):
            number = _number(source, operation.right, passes, is_certain=True)
            yield from () if number is None else (number,)
    # A counter that is set back is compared with the number itself.
    if not list(source.inside(test, cst.Modulo)):
        for one in source.inside(test, cst.ComparisonTarget):
            number = _number(source, one.comparator, passes, is_certain=False)
            yield from () if number is None else (number,)


def _number(
    source: SourceFile, node: cst.BaseExpression, passes: int, *, is_certain: bool
) -> cst.BaseExpression | None:
    """Return an expression for a number; None if it has another value.

    Args:
        source: The file.
        node: The expression.
        passes: The number.
        is_certain: Whether an expression of unknown value stands for it.
    """
    known = node if isinstance(node, cst.Integer) else value_of(source, node)
    if isinstance(known, cst.Integer):
        return node.deep_clone() if known.evaluated_value == passes else None
    is_named = isinstance(node, cst.Name | cst.Attribute)
    return node.deep_clone() if is_certain and is_named else None
