"""Removes the call or the block that cuts a gradient off."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.reach.fixes.disabled_gradients import with_gradient
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the line that cuts."""
    source = files.at(finding.location)
    if source is None or finding.location is None or finding.severity == "note":
        return
    operation = dict(finding.evidence)["operation"]
    if operation is None:
        yield source.edits(with_gradient(source, finding.location.line))
        return
    changes = only(_found(source, finding.location.line, str(operation)))
    if changes:
        yield source.edits(changes)


def _found(source: SourceFile, line: int, operation: str) -> Iterator[Changes]:
    """Yield the change of every place on a line that may be the cut."""
    if operation == "data":
        for node in source.on_line(line, cst.Attribute):
            if node.attr.value == "data":
                yield {node: in_place_of(source, node, node.value)}
        return
    for call in source.on_line(line, cst.Call):
        function = call.func
        is_method = isinstance(function, cst.Attribute) and function.attr.value == operation
        if operation == "detach" and is_method and not call.args:
            assert isinstance(function, cst.Attribute)
            is_meant = (
                _passes_straight_through(source, call)
                or _is_one_of_two_losses(source, call)
                or _leaves_torch(source, call)
            )
            yield {} if is_meant else {call: in_place_of(source, call, function.value)}
        elif operation == "item" and is_method and not call.args:
            assert isinstance(function, cst.Attribute)
            yield {call: in_place_of(source, call, function.value)}
        elif operation == "tensor" and source.qualified(function) == "torch.tensor":
            yield _without_copy(source, call)


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


def _without_copy(source: SourceFile, call: cst.Call) -> Changes:
    """Return the change of `torch.tensor(x)` to `x`, and of that of a list to `torch.stack`."""
    first = call.args[0] if call.args else None
    if first is None or first.star or first.keyword is not None or len(call.args) > 1:
        return {}
    if isinstance(first.value, cst.List | cst.ListComp | cst.Tuple):
        if not isinstance(call.func, cst.Attribute):
            return {}
        return {call.func.attr: cst.Name("stack")}
    return {call: in_place_of(source, call, first.value)}
