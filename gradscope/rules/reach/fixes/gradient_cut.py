"""Removes the call or the block that cuts a gradient off, or moves it behind another use."""

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.reach.fixes.copied_results import (
    unconverted,
    uncopied,
    unlisted,
    unread,
    unwrapped,
    with_graph,
)
from gradscope.rules.reach.fixes.disabled_gradients import with_gradient
from gradscope.source_edits.removed_operations import without_operation
from gradscope.source_edits.source_file import (
    Changes,
    SourceFile,
    method_call,
    only,
)
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.variables import reads_behind

_CHECKPOINTS = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the line that cuts."""
    del context
    source = files.at(finding.location)
    if source is None or finding.location is None or finding.severity == "note":
        return
    operation, line = dict(finding.evidence)["operation"], finding.location.line
    if operation is None:
        changes = _not_reentrant(source, line) or with_gradient(source, line)
        yield source.edits(changes)
        assigned = only(source.on_line(line, cst.Assign))
        earlier = {} if assigned is None else _detached_for_earlier_uses(source, assigned)
        if changes and earlier:
            yield source.edits({**changes, **earlier})
        return
    places = list(_found(source, line, str(operation)))
    if len(places) > 1 and operation in ("data", "detach"):
        if several := _of_all(source, places, finding):
            yield source.edits(several)
        return
    for changes in only(places) or ():
        if changes:
            yield source.edits(changes)


def _of_all(source: SourceFile, places: list[list[Changes]], finding: Finding) -> Changes:
    """Return the changes of all cuts of a line; none unless each cuts a module of the finding."""
    changes = [next(iter(place), None) for place in places]
    merged = {node: new for one in changes if one for node, new in one.items()}
    codes = [source.code(node) for node in merged]
    calls = {f".{part}(" for name in finding.parameters for part in name.split(".")[:-1]}
    are_named = all(any(call in code for call in calls) for code in codes)
    is_nested = any(
        one in other for at, one in enumerate(codes) for to, other in enumerate(codes) if at != to
    )
    return merged if len(merged) == len(places) and are_named and not is_nested else {}


def _not_reentrant(source: SourceFile, line: int) -> Changes:
    """Return the change of the only checkpoint on a line to one that is not reentrant."""
    call = only(
        one for one in source.on_line(line, cst.Call) if source.qualified(one.func) in _CHECKPOINTS
    )
    if call is None or any(one.star == "**" for one in call.args):
        return {}
    example = cst.ensure_type(cst.parse_expression("f(use_reentrant=False)"), cst.Call)
    given = only(one for one in call.args if one.keyword and one.keyword.value == "use_reentrant")
    if given is None:
        return {call: call.with_changes(args=[*call.args, example.args[0]])}
    is_literal = isinstance(given.value, cst.Name) and given.value.value == "True"
    return {given.value: cst.Name("False")} if is_literal else {}


def _found(source: SourceFile, line: int, operation: str) -> Iterator[list[Changes]]:
    """Yield the possible changes of every place on a line that may be the cut."""
    places = _PLACES.get(operation)
    return iter(()) if places is None else places(source, line)


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


_PLACES: dict[str, Callable[[SourceFile, int], Iterator[list[Changes]]]] = {
    "Parameter": unwrapped,
    "__float__": partial(unread, function="float"),
    "autograd.grad": with_graph,
    "data": _of_data,
    "detach": _detaching,
    "item": unread,
    "tensor": uncopied,
    "tolist": unlisted,
}
"""What finds the changes of every place on a line, by the operation that cuts."""
