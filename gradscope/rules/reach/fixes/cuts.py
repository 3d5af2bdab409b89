"""Edits that remove a call or a block that cuts a gradient off, or move it behind another use."""

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst

from gradscope.recording.finding import Finding
from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.reach.fixes.copied_results import (
    unconverted,
    uncopied,
    unlisted,
    unread,
    unwrapped,
    with_graph,
)
from gradscope.source_edits.calls import without_operation
from gradscope.source_edits.source_file import (
    Changes,
    SourceFile,
    method_call,
    only,
)
from gradscope.source_edits.variables import reads_behind

_CHECKPOINTS = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")


def gradient_cut(fix: FixContext) -> Iterator[Edits]:
    """Remove what cuts from the line."""
    source, line, operation = fix.source, fix.line, fix.evidence["operation"]
    if operation is None:
        changes = _not_reentrant(source, line) or _with_gradient(source, line)
        yield source.edits(changes)
        assigned = only(source.on_line(line, cst.Assign))
        earlier = {} if assigned is None else _detached_for_earlier_uses(source, assigned)
        if changes and earlier:
            yield source.edits({**changes, **earlier})
        return
    cuts = list(_found(source, line, str(operation)))
    if len(cuts) > 1 and operation in ("data", "detach"):
        yield source.edits(_of_all(source, cuts, fix.finding))
        return
    yield from map(source.edits, only(cuts) or ())


def _of_all(source: SourceFile, cuts: list[list[Changes]], finding: Finding) -> Changes:
    """Return the changes of all cuts of a line; none unless each cuts a module of the finding."""
    changes = [next(iter(cut), None) for cut in cuts]
    merged = {node: new for one in changes if one for node, new in one.items()}
    codes = [source.code(node) for node in merged]
    calls = {f".{part}(" for name in finding.parameters for part in name.split(".")[:-1]}
    are_named = all(any(call in code for call in calls) for code in codes)
    is_nested = any(
        one in other for at, one in enumerate(codes) for to, other in enumerate(codes) if at != to
    )
    return merged if len(merged) == len(cuts) and are_named and not is_nested else {}


def _not_reentrant(source: SourceFile, line: int) -> Changes:
    """Return the change of the only checkpoint on a line to one that is not reentrant."""
    call = only(
        one for one in source.on_line(line, cst.Call) if source.qualified(one.func) in _CHECKPOINTS
    )
    # `**options` may hold `use_reentrant`.
    if call is None or any(one.star == "**" for one in call.args):
        return {}
    example = cst.ensure_type(cst.parse_expression("f(use_reentrant=False)"), cst.Call)
    given = only(one for one in call.args if one.keyword and one.keyword.value == "use_reentrant")
    if given is None:
        return {call: call.with_changes(args=[*call.args, example.args[0]])}
    is_literal = isinstance(given.value, cst.Name) and given.value.value == "True"
    return {given.value: cst.Name("False")} if is_literal else {}


def _found(source: SourceFile, line: int, operation: str) -> Iterator[list[Changes]]:
    """Yield the possible changes of everything on a line that may be the cut."""
    cuts = _CHANGES.get(operation)
    return iter(()) if cuts is None else cuts(source, line)


def _of_data(source: SourceFile, line: int) -> Iterator[list[Changes]]:
    """Yield the change of every `x.data` on a line to `x`."""
    for node in source.on_line(line, cst.Attribute):
        if node.attr.value == "data":
            yield [without_operation(source, node, node.value)]


def _detaching(source: SourceFile, line: int) -> Iterator[list[Changes]]:
    """Yield the change of every `detach()` on a line, empty for one that is meant.

    On the way to NumPy and back, the whole way stays in torch.
    """
    for call in source.on_line(line, cst.Call):
        function = call.func
        if not isinstance(function, cst.Attribute) or function.attr.value != "detach":
            continue
        if _leaves_torch(source, call):
            yield [changes] if (changes := unconverted(source, call)) else []
            continue
        is_meant = _passes_straight_through(source, call) or _is_one_of_two_losses(source, call)
        if is_meant:
            yield []
        else:
            removed = without_operation(source, call, function.value)
            assigned = source.parent(call)
            earlier = (
                _detached_for_earlier_uses(source, assigned)
                if isinstance(assigned, cst.Assign)
                else {}
            )
            yield [removed, *([{**removed, **earlier}] if earlier else [])]


def _detached_for_earlier_uses(source: SourceFile, assigned: cst.Assign) -> Changes:
    """Return the change that detaches a variable in all statements that read it but the last one.

    This is how a discriminator's loss takes what the generator's loss takes after it.
    """
    (target, *others) = assigned.targets
    if others or not isinstance(target.target, cst.Name):
        return {}
    uses = reads_behind(source, assigned, target.target.value)
    last = source.statement_of(uses[-1]) if uses else None
    return {one: method_call(one, "detach") for one in uses if source.statement_of(one) is not last}


def _passes_straight_through(source: SourceFile, cut: cst.Call) -> bool:
    """Return whether a call is the `detach()` of `x + (f(x) - x).detach()`."""
    sum_ = source.parent(cut)
    inner = cut.func.value if isinstance(cut.func, cst.Attribute) else None
    if not isinstance(inner, cst.BinaryOperation) or not isinstance(sum_, cst.BinaryOperation):
        return False
    other = sum_.left if sum_.right is cut else sum_.right
    parts = [source.code(one.with_changes(lpar=[], rpar=[])) for one in (other, inner.right)]
    return isinstance(inner.operator, cst.Subtract) and parts[0] == parts[1]


def _is_one_of_two_losses(source: SourceFile, cut: cst.Call) -> bool:
    """Return whether a loss takes the detached tensor, and another one another, as in a VQ-VAE."""
    function = source.around(cut, cst.FunctionDef)
    cuts = [
        one
        for one in source.inside(source.module if function is None else function, cst.Call)
        if isinstance(one.func, cst.Attribute) and one.func.attr.value == "detach"
        if _is_of_loss(source, one)
    ]
    return len(cuts) > 1 and any(one is cut for one in cuts)


def _is_of_loss(source: SourceFile, call: cst.Call) -> bool:
    """Return whether a call is an argument of a function such as `mse_loss`."""
    argument = source.parent(call)
    outer = source.parent(argument)
    is_argument = isinstance(argument, cst.Arg) and isinstance(outer, cst.Call)
    return is_argument and source.code(outer).partition("(")[0].endswith("loss")


def _leaves_torch(source: SourceFile, call: cst.Call) -> bool:
    """Return whether the detached tensor becomes an array, or numbers."""
    following = source.parent(call)
    while isinstance(following, cst.Attribute | cst.Call):
        if isinstance(following, cst.Attribute) and following.attr.value in ("numpy", "tolist"):
            return True
        following = source.parent(following)
    return False


_CHANGES: dict[str, Callable[[SourceFile, int], Iterator[list[Changes]]]] = {
    "Parameter": unwrapped,
    "__float__": partial(unread, function="float"),
    "autograd.grad": with_graph,
    "data": _of_data,
    "detach": _detaching,
    "item": unread,
    "tensor": uncopied,
    "tolist": unlisted,
}
"""What finds the changes of every cut on a line, by the operation that cuts."""
_SWITCHES = ("torch.no_grad", "torch.inference_mode")


def _with_gradient(source: SourceFile, line: int) -> Changes:
    """Return the change that removes the only `no_grad` around a line.

    It may be a `with` block or a decorator. Empty if there are several, or none in the function.
    """
    statement = only(source.statements(line))
    if statement is None:
        return {}
    found: list[Changes] = []
    node = statement
    while node is not source.module:
        node = source.parent(node)
        if isinstance(node, cst.With):
            if _iterates(source, node):
                return {}
            found += _without_item(source, node)
        if isinstance(node, cst.FunctionDef):
            found += _without_decorator(source, node)
            break
    return only(found) or {}


def _iterates(source: SourceFile, block: cst.With) -> bool:
    """Return whether a block repeats something, whose history may be left out on purpose."""
    return any(True for _ in source.inside(block.body, cst.For, cst.While, cst.Lambda))


def _without_item(source: SourceFile, block: cst.With) -> list[Changes]:
    """Return the change of a `with` block, for each of its items that disables gradients."""
    items = [one for one in block.items if _disables(source, one.item)]
    if not items:
        return []
    left = [one for one in block.items if one not in items]
    if left:
        left[-1] = left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return [{block: block.with_changes(items=left)}]
    return [_unwrapped(block)]


def _unwrapped(block: cst.With) -> Changes:
    """Return the change of a block to its statements."""
    body = block.body
    if not isinstance(body, cst.IndentedBlock):
        assert isinstance(body, cst.SimpleStatementSuite)
        line = cst.SimpleStatementLine(body=body.body, leading_lines=block.leading_lines)
        return {block: cst.FlattenSentinel([line])}
    first, *others = body.body
    if not isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement):
        return {}
    above = [*block.leading_lines]
    # The comment behind the colon would be lost with the line.
    if body.header.comment is not None:
        above.append(cst.EmptyLine(comment=body.header.comment))
    first = first.with_changes(leading_lines=[*above, *first.leading_lines])
    return {block: cst.FlattenSentinel([first, *others])}


def _without_decorator(source: SourceFile, function: cst.FunctionDef) -> list[Changes]:
    return [
        {one: cst.RemovalSentinel.REMOVE}
        for one in function.decorators
        if _disables(source, one.decorator)
    ]


def _disables(source: SourceFile, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a switch without arguments, called or not."""
    if isinstance(node, cst.Call):
        # `no_grad(function)` wraps a function, and `inference_mode(False)` enables gradients.
        return not node.args and source.qualified(node.func) in _SWITCHES
    return source.qualified(node) in _SWITCHES
