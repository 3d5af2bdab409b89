"""Edits of what a loss is divided by, and of the history that it keeps."""

from collections.abc import Iterator

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.recording.events import CarriedEvent, event_of
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import Edits, FixContext
from gradscope.source_edits.mean_losses import MeanLoss, mean_loss
from gradscope.source_edits.passes import (
    call_on,
    is_number,
    is_repeatable,
    loop_around,
    loss_of,
    window_of,
)
from gradscope.source_edits.source_file import SourceFile, in_place_of, method_call, only, operand
from gradscope.source_edits.statements import line_before, line_of
from gradscope.source_edits.variables import is_visible, names_in, reads

_WITH_TUPLE, _WITH_TENSOR = "LSTM", ("GRU", "RNN")


def growing_graph(fix: FixContext) -> Iterator[Edits]:
    """Detach a state that is carried from step to step; nothing for sums and containers."""
    source, context, name = fix.source, fix.context, fix.evidence["carried"]
    if not isinstance(name, str) or not _is_state(fix, name):
        return
    statement = only(
        one for one in source.on_line(fix.line, cst.Assign) if _assigns(source, one, name)
    )
    read = None if statement is None else only(reads(source, statement.value, name))
    if statement is None or read is None:
        return
    if isinstance(source.parent(read), cst.BinaryOperation | cst.Attribute):
        yield source.edits({read: method_call(read, "detach")})
    elif not _is_read_behind(source, statement, name):
        for value in _detached(context, name):
            line = line_of(f"{name} = {value}")
            yield source.edits(source.inserted_after(statement, line.body[0]))
    elif not _has_tuple(context):
        yield source.edits({read: method_call(read, "detach")})


def _is_state(fix: FixContext, name: str) -> bool:
    """Return whether a variable is replaced in each step, and no sum or container."""
    found = [
        one
        for one in map(event_of, fix.context.recording.events)
        if isinstance(one, CarriedEvent)
        and one.subject == name
        and fix.context.site(one.site) == fix.site
    ]
    return bool(found) and not any(one.sum or one.collected for one in found)


def _assigns(source: SourceFile, statement: cst.Assign, name: str) -> bool:
    targets = [one.target for one in statement.targets]
    inner = [
        element.value for one in targets if isinstance(one, cst.Tuple) for element in one.elements
    ]
    return name in [source.code(one) for one in (*targets, *inner)]


def _is_read_behind(source: SourceFile, statement: cst.Assign, name: str) -> bool:
    """Return whether later statements of the block read a variable: the loss may depend on it."""
    block, last = source.parent(source.parent(statement)), max(source.lines(statement))
    return any(source.start(node)[0] > last for node in reads(source, block, name))


def _detached(context: RuleContext, name: str) -> Iterator[str]:
    """Yield how to detach a state: that of an LSTM is a tuple, that of other layers a tensor."""
    kinds = _kinds(context)
    if _has_tuple(context):
        yield f"tuple(part.detach() for part in {name})"
    if kinds.intersection(_WITH_TENSOR):
        yield f"{name}.detach()"


def _has_tuple(context: RuleContext) -> bool:
    return any(kind.startswith(_WITH_TUPLE) for kind in _kinds(context))


def _kinds(context: RuleContext) -> set[str]:
    return {module.class_name for module in context.recording.modules}


def loss_history_kept(fix: FixContext) -> Iterator[Edits]:
    """Detach what the line adds, to add up numbers without their graphs."""
    stored = only(_added(fix.source, fix.line, str(fix.evidence["kept_by"])))
    added = None if stored is None else _tensor(stored)
    if added is not None:
        new = method_call(added, "detach")
        yield fix.source.edits({added: in_place_of(fix.source, added, new)})


def _added(source: SourceFile, line: int, name: str) -> Iterator[cst.BaseExpression]:
    """Yield what a line adds to a variable, or to a list."""
    for statement in source.on_line(line, cst.AugAssign):
        if source.code(statement.target) == name or _is_element(source, statement.target, name):
            yield statement.value
    for assignment in source.on_line(line, cst.Assign):
        targets = [one.target for one in assignment.targets]
        if [source.code(one) for one in targets] == [name]:
            yield _summand(source, assignment.value, name)
        elif len(targets) == 1 and _is_element(source, targets[0], name):
            yield assignment.value
    yield from _appended(source, line, name)


def _appended(source: SourceFile, line: int, name: str) -> Iterator[cst.BaseExpression]:
    """Yield what a line appends to a list, or to one of several lists."""
    for call in source.on_line(line, cst.Call):
        function = call.func
        is_append = isinstance(function, cst.Attribute) and function.attr.value == "append"
        if is_append and len(call.args) == 1 and isinstance(function, cst.Attribute):
            owner = function.value
            if source.code(owner) == name or _is_element(source, owner, name):
                yield call.args[0].value


def _is_element(source: SourceFile, node: cst.BaseExpression, name: str) -> bool:
    """Return whether an expression is `name[…]`."""
    return isinstance(node, cst.Subscript) and source.code(node.value) == name


def _summand(source: SourceFile, value: cst.BaseExpression, name: str) -> cst.BaseExpression:
    """Return `b` of `name + b`, otherwise the whole value."""
    is_sum = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add)
    if is_sum and isinstance(value, cst.BinaryOperation) and source.code(value.left) == name:
        return value.right
    return value


def _tensor(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the only variable of a list or tuple; anything else as it is."""
    if not isinstance(value, cst.List | cst.Tuple):
        return value
    found = [one.value for one in value.elements if isinstance(one.value, cst.Name | cst.Attribute)]
    return only(found)


def unscaled_accumulation(fix: FixContext) -> Iterator[Edits]:
    """Divide what `backward()` is called on by the number of micro-batches."""
    source, passes = fix.source, fix.evidence["passes"]
    backward = call_on(source, fix.site, "backward")
    step = call_on(source, fix.related, "step")
    if backward is None or step is None or not isinstance(passes, int):
        return
    window = window_of(source, backward, step, passes)
    loss = loss_of(backward)
    if window is not None and loss is not None and _is_only_backward(source, backward):
        divided = cst.BinaryOperation(left=operand(loss), operator=cst.Divide(), right=window)
        yield source.edits({loss: in_place_of(source, loss, divided)})


def _is_only_backward(source: SourceFile, backward: cst.Call) -> bool:
    function = source.around(backward, cst.FunctionDef)
    outer = source.module if function is None else function
    return not any(
        call is not backward
        for call in source.inside(outer, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward"
    )


def uneven_accumulation(fix: FixContext) -> Iterator[Edits]:
    """Divide the summed losses of a step by the number of all targets.

    They are counted before the loop over a list of micro-batches.
    """
    source, passes = fix.source, fix.evidence["passes"]
    backward = call_on(source, fix.site, "backward")
    step = call_on(source, fix.related, "step")
    loop = None if backward is None else loop_around(source, backward)
    if backward is None or step is None or not isinstance(loop, cst.For):
        return
    if any(one is step for one in source.inside(loop, cst.Call)) or not _is_plain(source, loop):
        return
    found = _divided_loss(source, loop, backward)
    mean = None if found is None else mean_loss(source, found.loss)
    if found is None or mean is None or not _is_counted(source, loop, mean):
        return
    if not isinstance(passes, int):
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
