"""Divides the summed losses of a step by the number of all their targets."""

from collections.abc import Iterator

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.mean_losses import MeanLoss, mean_loss
from gradscope.source_edits.passes import call_on, is_number, is_repeatable, loop_around, loss_of
from gradscope.source_edits.source_file import SourceFile, in_place_of, only, operand
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import line_before
from gradscope.source_edits.variables import is_visible, names_in, reads


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that counts the targets before the loop over a list of micro-batches."""
    del context
    source = files.at(finding.location)
    passes = dict(finding.evidence)["passes"]
    if source is None or not finding.related or not isinstance(passes, int):
        return
    backward = call_on(source, finding.location, "backward")
    step = call_on(source, finding.related[0], "step")
    loop = None if backward is None else loop_around(source, backward)
    if backward is None or step is None or not isinstance(loop, cst.For):
        return
    if any(one is step for one in source.inside(loop, cst.Call)) or not _is_plain(source, loop):
        return
    found = _divided_loss(source, loop, backward)
    mean = None if found is None else mean_loss(source, found.loss)
    if found is None or mean is None or not _is_counted(source, loop, mean):
        return
    if found.divisor is not None and not is_number(source, found.divisor, passes):
        return
    name = _free_name(source)
    counted = f"sum({mean.count} for {source.code(loop.target)} in {source.code(loop.iter)})"
    loss = mean.summed.get(found.loss, found.loss)
    assert isinstance(loss, cst.BaseExpression)
    changes = dict(mean.summed)
    if found.divisor is None:
        divided = cst.BinaryOperation(operand(loss), cst.Divide(), cst.Name(name))
        changes[found.loss] = in_place_of(source, found.loss, divided)
    else:
        changes[found.divisor] = cst.Name(name)
    yield source.edits(line_before(loop, f"{name} = {counted}")) + source.edits(changes)


@dataclass(frozen=True, slots=True)
class _DividedLoss:
    """The call that computes a loss, and what the loss is divided by."""

    loss: cst.Call
    divisor: cst.BaseExpression | None


def _divided_loss(source: SourceFile, loop: cst.For, backward: cst.Call) -> _DividedLoss | None:
    """Return the loss of a backward, computed in its argument or in an assignment of the loop.

    Another assignment may divide the variable, as `loss = loss / 4` or `loss /= 4` do.
    """
    value = loss_of(backward)
    divisors: list[cst.BaseExpression] = []
    for _ in range(2):
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Divide):
            divisors.append(value.right)
            value = value.left
        if isinstance(value, cst.Name):
            name = value.value
            divisors += [
                one.value
                for one in source.inside(loop, cst.AugAssign)
                if source.code(one.target) == name and isinstance(one.operator, cst.DivideAssign)
            ]
            assigned = [
                one.value
                for one in source.inside(loop, cst.Assign)
                if [source.code(target.target) for target in one.targets] == [name]
            ]
            again = [_divisor(source, one, name) for one in assigned]
            divisors += [one for one in again if one is not None]
            value = only(one for one, by in zip(assigned, again, strict=True) if by is None)
    if not isinstance(value, cst.Call) or len(divisors) > 1:
        return None
    return _DividedLoss(value, divisors[0] if divisors else None)


def _divisor(source: SourceFile, value: cst.BaseExpression, name: str) -> cst.BaseExpression | None:
    """Return what a variable is divided by in an expression; None for another expression."""
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Divide):
        return None
    return value.right if source.code(value.left) == name else None


def _is_plain(source: SourceFile, loop: cst.For) -> bool:
    """Return whether a loop takes every item of what can be repeated."""
    is_whole = not any(True for _ in source.inside(loop.body, cst.Break, cst.Continue))
    return is_whole and loop.orelse is None and is_repeatable(source, loop.iter)


def _is_counted(source: SourceFile, loop: cst.For, mean: MeanLoss) -> bool:
    """Return whether the targets of all micro-batches can be counted before the loop."""
    own = names_in(source, loop.target)
    for node in mean.counted:
        names = names_in(source, node)
        for name in source.inside(node, cst.Name):
            if name.value not in names:
                continue
            is_known = name.value in own or is_visible(source, name, loop.iter)
            if not is_known or _is_changed(source, loop, name.value):
                return False
    return True


def _is_changed(source: SourceFile, loop: cst.For, name: str) -> bool:
    """Return whether a loop assigns a variable, other than to move it to a device."""
    for read in reads(source, loop.body, name):
        target = source.parent(read)
        if not isinstance(target, cst.AssignTarget | cst.AugAssign | cst.Element):
            continue
        statement = source.statement_of(read)
        value = statement.value if isinstance(statement, cst.Assign) else None
        moves = isinstance(value, cst.Call) and source.code(value.func) in (
            f"{name}.to",
            f"{name}.cuda",
        )
        if not isinstance(target, cst.Element) and not moves:
            return True
        if isinstance(target, cst.Element) and _is_target(source, target):
            return True
    return False


def _is_target(source: SourceFile, element: cst.Element) -> bool:
    return isinstance(source.parent(source.parent(element)), cst.AssignTarget)


def _free_name(source: SourceFile) -> str:
    used = {one.value for one in source.all(cst.Name)}
    names = ("target_count", "step_target_count", "window_target_count")
    return next(name for name in names if name not in used)
