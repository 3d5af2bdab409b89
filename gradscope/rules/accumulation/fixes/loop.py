"""Edits of the order of calls in a training loop."""

from collections.abc import Iterator, Sequence

import libcst as cst

from gradscope.rules.fix import Edits, FixContext
from gradscope.source_edits.moved_statements import moved_after, moved_before
from gradscope.source_edits.passes import Loop, call_on, loop_around
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.statements import (
    call_named,
    line_at_start,
    line_before,
    line_of,
    statement_on,
    statement_with,
)
from gradscope.source_edits.variables import reads


def gradient_erased_before_step(fix: FixContext) -> Iterator[Edits]:
    """Move `zero_grad()` before the backward, or before its window.

    A step before the backward is moved behind it.
    """
    source, related = fix.source, fix.finding.related
    zeroing = statement_with(source, fix.site, "zero_grad")
    passing = statement_with(source, fix.related, "backward")
    if zeroing is None or passing is None:
        return
    if "steps_without_gradient" in fix.evidence:
        step = statement_with(source, only(related[1:]), "step")
        if step is not None and source.start(zeroing) < source.start(step) < source.start(passing):
            yield source.edits(moved_after(source, step, passing, changes_other=True))
        else:
            yield source.edits(moved_before(source, zeroing, passing))
    elif len(related) == 2:
        step = statement_with(source, related[1], "step")
        line = source.parent(zeroing)
        if step is not None and isinstance(line, cst.SimpleStatementLine) and _is_plain(line):
            moved = _before_window(source, zeroing, step)
            removed = source.edits({line: cst.RemovalSentinel.REMOVE}) if moved else ()
            yield removed + source.edits(moved) if moved else ()


def _is_plain(line: cst.SimpleStatementLine) -> bool:
    """Return whether a line has one statement and no comment."""
    above = any(one.comment for one in line.leading_lines)
    return len(line.body) == 1 and not above and line.trailing_whitespace.comment is None


def _before_window(
    source: SourceFile, zeroing: cst.BaseSmallStatement, step: cst.BaseSmallStatement
) -> Changes:
    """Return the change that zeroes before the loop over micro-batches, or behind the step in it.

    Empty if the step is neither outside of the loop nor in a condition of its own.
    """
    loop = loop_around(source, zeroing)
    if loop is None:
        return {}
    if loop is not loop_around(source, step):
        is_outside = not any(one is step for one in source.inside(loop, type(step)))
        is_window = isinstance(loop, cst.While) or not _draws_batches(source, loop)
        return line_before(loop, source.code(zeroing)) if is_outside and is_window else {}
    guard = source.around(step, cst.If, cst.For, cst.While)
    is_guarded = isinstance(guard, cst.If) and source.around(zeroing, cst.If) is not guard
    return source.inserted_after(step, zeroing) if is_guarded else {}


def _draws_batches(source: SourceFile, loop: cst.For) -> bool:
    """Return whether a loop goes over a whole loader: the step, too, may belong into it."""
    items = loop.iter
    if isinstance(items, cst.Call) and source.code(items.func) in ("enumerate", "tqdm"):
        items = items.args[0].value if items.args else items
    return source.code(items).rpartition(".")[2].lower().endswith(("loader", "batches", "dl"))


def missing_zero_grad(fix: FixContext) -> Iterator[Edits]:
    """Insert `zero_grad()` once per step.

    It is inserted before the first backward of a step, which also drops what another optimizer's
    loss left; behind the step if the backward is in another block.
    """
    source, step = fix.source, fix.related
    found = None if step is None or step.file != source.path else only(_steps(source, step.line))
    if found is None:
        return
    stepping, optimizer = found
    zeroing = line_of(f"{optimizer}.zero_grad()").body[0]
    backward = statement_on(source, fix.line)
    first = None if backward is None else _first_pass(source, backward, source.parent(stepping))
    if first is not None:
        changes = source.inserted_before(first.body[0], zeroing)
    else:
        changes = source.inserted_after(stepping, zeroing)
    yield source.edits(changes)


def _steps(source: SourceFile, line: int) -> Iterator[tuple[cst.BaseSmallStatement, str]]:
    """Yield the statements of a line that step an optimizer, with its name.

    What is named a schedule is none.
    """
    for statement in source.statements(line):
        optimizer = optimizer_of(source, statement)
        is_schedule = optimizer is not None and "sched" in optimizer.lower()
        if (
            optimizer is not None
            and not is_schedule
            and isinstance(statement, cst.BaseSmallStatement)
        ):
            yield statement, optimizer


def _first_pass(
    source: SourceFile, backward: cst.SimpleStatementLine, step: cst.CSTNode
) -> cst.SimpleStatementLine | None:
    """Return the first backward in the block of a step, behind the step before it.

    None if another block has a backward of this step.
    """
    block = source.parent(backward)
    if not isinstance(block, cst.IndentedBlock | cst.Module) or source.parent(step) is not block:
        return None
    at = next(number for number, line in enumerate(block.body) if line is step)
    before = [*block.body[:at]]
    for number, line in enumerate(before):
        if any(optimizer_of(source, one) for one in source.inside(line, cst.Expr)):
            before = [*block.body[number + 1 : at]]
    passes = [line for line in before if _is_pass(source, line)]
    is_whole = all(isinstance(line, cst.SimpleStatementLine) for line in passes)
    first = passes[0] if passes and is_whole else None
    return first if isinstance(first, cst.SimpleStatementLine) and len(first.body) == 1 else None


def _is_pass(source: SourceFile, line: cst.CSTNode) -> bool:
    return any(
        isinstance(one.func, cst.Attribute) and one.func.attr.value.endswith("backward")
        for one in source.inside(line, cst.Call)
    )


def optimizer_of(source: SourceFile, statement: cst.CSTNode) -> str | None:
    """Return the optimizer of `optimizer.step()` or `scaler.step(optimizer)`; None if unclear."""
    call = call_named(source, statement, ["step"])
    if call is None or not isinstance(call.func, cst.Attribute):
        return None
    if not call.args:
        return source.code(call.func.value)
    is_scaler = "scaler" in source.code(call.func.value).lower()
    is_named = isinstance(call.args[0].value, cst.Name | cst.Attribute)
    return source.code(call.args[0].value) if is_scaler and is_named else None


def scheduler_before_optimizer(fix: FixContext) -> Iterator[Edits]:
    """Move the scheduler's step behind the optimizer's.

    Behind the block of the optimizer's step if that is another one.
    """
    source = fix.source
    sites = [fix.site, *fix.finding.related[:1]]
    lines = dict.fromkeys(one.line for one in sites if one.file == source.path)
    steps = [
        one
        for line in lines
        for one in source.statements(line)
        if isinstance(one, cst.BaseSmallStatement) and call_named(source, one, ["step"]) is not None
    ]
    if len(steps) == len(sites) == 2:
        yield source.edits(moved_after(source, *steps))


def training_in_eval_mode(fix: FixContext) -> Iterator[Edits]:
    """Insert `model.train()` before the loop over batches, and into it.

    Only into it if the loop evaluates the model itself.
    """
    source, site = fix.source, fix.finding.location
    backward = call_on(source, fix.site, "backward")
    code = None if backward is None else _switch(source, backward, fix.finding.modules)
    if backward is None or code is None:
        return
    function, loop = source.around(backward, cst.FunctionDef), loop_around(source, backward)
    if loop is None:
        if function is not None:
            yield source.edits(line_at_start(source, function, code))
        return
    if site is None or not _evaluates(source, loop, site.line):
        yield source.edits(line_before(loop, code))
    yield source.edits(line_at_start(source, loop, code))


def _switch(source: SourceFile, backward: cst.Call, modules: Sequence[str]) -> str | None:
    """Return the call that switches the only module to train mode; None if no name is read."""
    name = only(modules)
    if name is None or not all(part.isidentifier() for part in name.split(".")):
        return None
    function = source.around(backward, cst.FunctionDef)
    outer = source.module if function is None else function
    named = (one for one in (name, f"self.{name}") if any(True for _ in reads(source, outer, one)))
    variable = next(named, None)
    return None if variable is None else f"{variable}.train()"


def _evaluates(source: SourceFile, loop: Loop, line: int) -> bool:
    """Return whether a loop has the line that switches to eval mode, or calls its function."""
    if line in source.lines(loop.body):
        return True
    functions = list(source.all(cst.FunctionDef))
    names = {one.name.value for one in functions if line in source.lines(one)}
    count = 0
    while len(names) > count:
        count = len(names)
        names |= {one.name.value for one in functions if _called(source, one.body) & names}
    return bool(_called(source, loop.body) & names)


def _called(source: SourceFile, outer: cst.CSTNode) -> set[str]:
    """Return the last parts of the names of all functions that a block calls."""
    return {source.code(one.func).rpartition(".")[2] for one in source.inside(outer, cst.Call)}
