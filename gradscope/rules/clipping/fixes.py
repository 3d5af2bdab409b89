"""Edits of clips: where they are, what they clip, and to which limit."""

from collections.abc import Iterator
from itertools import product

import libcst as cst

from gradscope.analysis.clipping.clips import Clips
from gradscope.analysis.clipping.limits import level_of
from gradscope.phrasing import literal
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.finding import Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.helpers.clips import judged_series
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.source_edits.calls import statements_calling, statements_that_only
from gradscope.source_edits.moved_statements import moved_after, moved_before, moved_into
from gradscope.source_edits.optimizers import (
    given_parameters,
    optimizer_call,
    owner_of_all,
    resolved,
    summands,
)
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.statements import (
    call_named,
    clip_statement,
    is_clip,
    line_of,
    statement_with,
)
from gradscope.source_edits.variables import is_visible, literal_of, names_in, value_of


def clip_after_step(fix: FixContext) -> Iterator[Edits]:
    """Move the clip before the step of the same pass through a loop.

    A function that only clips counts as the line that calls it.
    """
    source = fix.source
    clipping = clip_statement(source, fix.site)
    stepping = statement_with(source, fix.related, "step")
    if clipping is None or stepping is None:
        return
    call = call_named(source, stepping, ["step"])
    if call is None or call.args:  # the gradients of a scaler's step are scaled before it
        return
    repeated = source.around(stepping, cst.FunctionDef, cst.For, cst.If, cst.While)
    for statement in statements_that_only(source, clipping):
        # A call in another loop or function runs at another rate than the step, and a move would
        # change how often it clips.
        if repeated is None or source.start(statement)[0] in source.lines(repeated):
            yield source.edits(moved_before(source, statement, stepping))
            return


def clip_before_backward(fix: FixContext) -> Iterator[Edits]:
    """Move the clip behind the backward, or the block around it.

    A function that only clips counts as the line that calls it, as does one with the backward.
    """
    source = fix.source
    clipping = clip_statement(source, fix.site)
    passing = statement_with(source, fix.related, "backward")
    if clipping is None or passing is None:
        return
    if call_named(source, passing, ["scale"]) is not None:  # its gradients are scaled
        return
    pairs = product(statements_that_only(source, clipping), statements_calling(source, passing))
    moves = (moved_after(source, *pair) for pair in pairs)
    yield source.edits(next(filter(None, moves), {}))


def clip_before_unscale(fix: FixContext) -> Iterator[Edits]:
    """Insert `scaler.unscale_(optimizer)` before the clip.

    Names are those of the only `scaler.step(optimizer)` behind the clip. A function that only clips
    counts as the line that calls it.
    """
    source = fix.source
    clipping = clip_statement(source, fix.site)
    for statement in () if clipping is None else statements_that_only(source, clipping):
        # With several optimizers it is unknown whose gradients the clip concerns, and `unscale_`
        # may be called once per optimizer and step.
        step = only(_steps_behind(source, statement))
        if step is not None and isinstance(step.func, cst.Attribute):
            scaler, optimizer = source.code(step.func.value), source.code(step.args[0].value)
            unscaling = line_of(f"{scaler}.unscale_({optimizer})")
            yield source.edits(source.inserted_before(statement, unscaling.body[0]))
            return


def _steps_behind(source: SourceFile, clipping: cst.BaseSmallStatement) -> list[cst.Call]:
    """Return the calls `scaler.step(optimizer)` behind a statement.

    They are in its block, or in the one around its condition.
    """
    block = _block(source, clipping)
    while True:
        found = [
            call
            for call in source.inside(block, cst.Call)
            if _steps_one(call) and _is_behind(source, call, clipping, block)
        ]
        guard = source.parent(block) if block is not source.module else None
        # An `if clip:` around the clip is common, while the step stands behind it.
        if found or not isinstance(guard, cst.If):
            return found
        block = source.parent(guard)


def _steps_one(call: cst.Call) -> bool:
    is_step = isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
    return is_step and len(call.args) == 1 and call.args[0].keyword is None


def _is_behind(
    source: SourceFile, call: cst.Call, clipping: cst.BaseSmallStatement, block: cst.CSTNode
) -> bool:
    """Return whether a call is in a statement of a block, behind another statement."""
    statement = source.statement_of(call)
    if statement is None or _block(source, statement) is not block:
        return False
    return source.start(statement) > source.start(clipping)


def _block(source: SourceFile, statement: cst.BaseSmallStatement) -> cst.CSTNode:
    line = source.parent(statement)
    return source.parent(line) if isinstance(line, cst.SimpleStatementLine) else line


def partial_clip(fix: FixContext) -> Iterator[Edits]:
    """Clip all parameters of the optimizer, or give a list in place of a used-up iterator."""
    source = fix.source
    clip = only(one for one in source.on_line(fix.line, cst.Call) if is_clip(source, one))
    clipped = None if clip is None else given_parameters(clip)
    if clip is None or clipped is None:
        return
    if "calls_without_parameters" in fix.evidence:
        stored = value_of(source, clipped)
        # `model.parameters()` is a generator that the first clip uses up. A list of it serves all
        # later calls.
        if stored is not None and not _is_list(stored):
            kept = cst.Call(func=cst.Name("list"), args=[cst.Arg(_bare(stored))])
            yield source.edits({stored: kept})
        return
    whole = _all_parameters(source, fix.context, clipped)
    others = [one for one in source.all(cst.Call) if is_clip(source, one)]
    # Another clip may be for the rest of the parameters. Both together must not clip them twice.
    if whole is not None and len(others) == 1:
        yield source.edits({clipped: whole.deep_clone()})


def _is_list(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.List | cst.ListComp | cst.Tuple | cst.BinaryOperation):
        return True
    function = value.func if isinstance(value, cst.Call) else None
    return isinstance(function, cst.Name) and function.value in ("list", "sorted", "tuple")


def _bare(value: cst.BaseExpression) -> cst.BaseExpression:
    is_generator = isinstance(value, cst.GeneratorExp)
    # A generator expression as the only argument needs no parentheses of its own.
    return value.with_changes(lpar=[], rpar=[]) if is_generator else value


def _all_parameters(
    source: SourceFile, context: RuleContext, clipped: cst.BaseExpression
) -> cst.BaseExpression | None:
    """Return the argument of the only optimizer; None if the clip cannot use the same one."""
    record = only(one for one in Optimizers(context).records if isinstance(one, OptimizerRecord))
    call = None if record is None else optimizer_call(source, context.site(record.site))
    given = None if call is None else given_parameters(call)
    if given is None or not (
        _are_attributes(source, given, clipped) or is_visible(source, given, clipped)
    ):
        return None
    # Without a common name the clip may be of another model than the optimizer's.
    if not _names_given(source, clipped) & _names_given(source, given):
        return None
    if isinstance(given, cst.Name) and _is_list(resolved(source, given)):
        return given
    parts = list(summands(given))
    # The argument of an optimizer may be groups with options of their own. Only whole
    # `x.parameters()` can be given to a clip, too.
    return given if all(owner_of_all(one) is not None for one in parts) else None


def _are_attributes(source: SourceFile, *parts: cst.BaseExpression) -> bool:
    """Return whether expressions name nothing but `self`, of one class."""
    kinds = {id(source.around(one, cst.ClassDef)) for one in parts}
    return len(kinds) == 1 and all(names_in(source, one) == {"self"} for one in parts)


def _names_given(source: SourceFile, given: cst.BaseExpression) -> set[str]:
    """Return the names that lead to parameters, also through a variable."""
    return names_in(source, given) | names_in(source, resolved(source, given))


def always_clipped(fix: FixContext) -> Iterator[Edits]:
    """Raise the limit of a clip to the one that `auto` takes."""
    source, advised = fix.source, _advised(fix.finding, fix.context)
    clip = only(
        one
        for one in source.on_line(fix.line, cst.Call)
        if source.qualified(one.func).endswith("clip_grad_norm_")
    )
    if clip is None or advised is None:
        return
    named = [one for one in clip.args if one.keyword and one.keyword.value == "max_norm"]
    given = named or [one for one in clip.args[1:2] if one.keyword is None and not one.star]
    limit = literal_of(source, given[0].value) if given else None
    # A literal of another value is not the limit that the run used, so raising it would change
    # something else.
    if limit is not None and limit.evaluated_value == fix.evidence["limit"]:
        yield source.edits({limit: cst.parse_expression(literal(advised))})


def _advised(finding: Finding, context: RuleContext) -> float | None:
    series = only(
        one for one in context.shared(judged_series) if context.site(one.site) == finding.location
    )
    level = None if series is None else level_of([point.norm for point in series.typical])
    return None if level is None else level.limit


def clip_inside_accumulation(fix: FixContext) -> Iterator[Edits]:
    """Move the clip before the only step that uses its gradients.

    Under `accelerator.accumulate(…)`, where the step is called for each micro-batch, it is clipped
    under the condition that makes the step.
    """
    source, context = fix.source, fix.context
    steps = {
        context.site(clip.step.site)
        for calls in context.shared(Clips).by_line
        for clip in calls
        if clip.step is not None and context.site(clip.event.site) == fix.site
    }
    clipping = clip_statement(source, fix.site)
    stepping = statement_with(source, only(steps), "step")
    if clipping is None or stepping is None or source.start(stepping) < source.start(clipping):
        return
    accelerator = _accumulating(source, clipping)
    # Accelerate's optimizer ignores `step()` while `sync_gradients` is false, so the condition is
    # nowhere in the script.
    if accelerator is not None:
        yield source.edits(_under(source, clipping, f"{accelerator}.sync_gradients"))
        return
    call = call_named(source, stepping, ["step"])
    if call is not None and not call.args:  # the gradients of a scaler's step are scaled before it
        yield source.edits(moved_into(source, clipping, stepping))


def _accumulating(source: SourceFile, statement: cst.CSTNode) -> str | None:
    """Return the accelerator of the `with accelerator.accumulate(…)` around a statement."""
    block = source.around(statement, cst.With, cst.FunctionDef)
    for item in block.items if isinstance(block, cst.With) else ():
        function = item.item.func if isinstance(item.item, cst.Call) else None
        if isinstance(function, cst.Attribute) and function.attr.value == "accumulate":
            return source.code(function.value)
    return None


def _under(source: SourceFile, statement: cst.BaseSmallStatement, condition: str) -> Changes:
    """Return the change that puts a statement under a condition; none if it shares its line."""
    line = source.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return {}
    branch = cst.If(
        test=cst.parse_expression(condition),
        body=cst.IndentedBlock(body=[line.with_changes(leading_lines=[])]),
        leading_lines=line.leading_lines,
    )
    return {line: branch}
