"""GS203: parameters that nothing of the loss depends on."""

import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import Part, named
from gradscope.analysis.reach import (
    Reach,
)
from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.parameters import (
    DroppedRecord,
    OverwrittenRecord,
    UnreadModuleRecord,
)
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.recording.records import ModuleCallRecord, Site
from gradscope.rules.captured_steps.turns import bystanders, line_of_loss
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Rule

_AROUND_TERMS = ("Div", "Mean", "Mul", "Sum")
"""Operations that reduce or weigh the whole loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedParameter(Rule):
    """Parameters require grad, but the loss does not depend on them.

    What it finds:
        Parameters that get no gradient in any step without a cut. Either their module runs but the
        loss does not use its output, such as an auxiliary head whose loss was forgotten, or the
        module is never called.

    Why it matters:
        They stay at their initial values, cost memory and optimizer state, and make
        DistributedDataParallel fail unless `find_unused_parameters` is set.

    How it is measured:
        A parameter counts if it requires grad and has no gradient after the first backward and
        after every probing step. It must also have none in forwards with other random numbers (up
        to 32, fewer for a large model), so layers that are dropped at random do not count. If its
        results were turned into numbers outside torch, the rule gives the parameter other values:
        it is unused if the loss stays bit-identical. There is no threshold.

        The level says how certain the mistake is. It is a warning if a module runs and the loss
        does not use it, and for a single parameter. It is a note if the module was never called
        while code reads its attribute somewhere, if the optimizer does not hold it, if an installed
        library made it, which may compute more than this loss uses, and for a last bias that the
        loss's derivatives do not depend on. It is a note, too, for the rest of a model of which
        only some layers are used: by calls of these layers, or by hooks while a statement calls the
        model and drops the result. It is an error if nothing else learns, or if the forward assigns
        the module's output to a variable that the next assignment overwrites, or a loop assigns the
        loss so.

        In a run of several optimizers, it is also a warning if a parameter gets a gradient from
        another optimizer's loss, and none in at least two captured backwards of its own, such as a
        discriminator's head whose term only the generator's loss has.

        The finding points to the loss. If no returned value depends on the module either, it points
        to the module's call, whose output the forward drops, or to the line that overwrites it.

    How to fix it:
        Use the output in the loss, or remove the module. If it is for later use, such as a head for
        another task, freeze it with `requires_grad_(False)`.

    When it may be wrong:
        If other batches take other paths through the model: a language, a task or an expert that
        this batch does not contain.

    Source:
        pytorch issue 43259 and YOLOX issue 885: auxiliary heads without a loss, found by
        DistributedDataParallel. torch documentation, `find_unused_parameters`.
        Measured: no finding in 86 healthy models; XLNet's and DINOv2's mask tokens are true notes.
    """

    code: ClassVar[str] = "GS203"
    name: ClassVar[str] = "unused-parameter"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the unused parts of every module, those that run and the others."""
        reach = context.shared(Reach)
        stopped = {parameter for stop in reach.stops for parameter in stop.parameters}
        # What a cut stops is for another rule. What has a node is used, and its gradient may be
        # zero.
        unused = reach.lost - stopped - context.parameter_nodes.keys() - _without_model(context)
        groups: dict[tuple[int | None, bool], list[Part]] = {}
        for part in reach.subtrees.parts(unused):
            key = (_parent(context, part), bool(_calls(reach, part)))
            groups.setdefault(key, []).append(part)
        alike: dict[tuple[object, ...], list[Part]] = {}  # of layers that are built alike
        for (parent, runs), parts in groups.items():
            kind = None if parent is None else context.recording.modules[parent].class_name
            names = tuple(part.name.rpartition(".")[2] for part in parts)
            alike.setdefault((runs, kind, names), []).extend(parts)
        for key_alike, parts in alike.items():
            yield self._finding(reach, parts, runs=bool(key_alike[0]))

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for what only a loss of another optimizer gives a gradient."""
        for one in bystanders(context):
            names = sorted(one.names)
            several = len(names) > 1
            loss, other = (line_of_loss(turn.captured) for turn in (one.own, one.other))
            yield self.finding(
                context,
                message=(
                    f"{names[0]}{f' and {len(names) - 1} more' if several else ''} "
                    f"{'get' if several else 'gets'} a gradient only from a loss whose optimizer "
                    f"does not hold {'them' if several else 'it'}: no step of "
                    f"{one.own.stepper.class_name}, which does, has one"
                ),
                remedy="add its term to the loss of its own optimizer, or freeze it",
                site=loss,
                related=(
                    context.related(other, "its only gradient comes from here"),
                    context.related(one.own.stepper.site, "the optimizer that holds it"),
                ),
                names=names,
                evidence={"parameters_unused": len(names)},
                count=len(names),
                step=one.own.captured.step,
            )

    def _finding(self, reach: Reach, parts: list[Part], *, runs: bool) -> Finding:
        context = reach.indexed
        parameters = [parameter for part in parts for parameter in sorted(part.parameters)]
        made = next((part.site for part in parts if part.site is not None), None)
        loss = context.first.nodes[0].site if context.first.nodes else None
        dropped = runs and _is_dropped(context, parameters)
        replaced = _overwritten(reach, parts) if dropped else None
        if runs and replaced is None:
            replaced = _overwritten_loss(context, loss)
        loss = _line_of_terms(context) or loss
        order = (_dropping(reach, parts), loss, made) if dropped else (loss, made)
        if replaced is not None:
            order = (replaced.site, *order)
        # What runs is unused at the loss, what never runs where it is made.
        positions = [
            position for position in (order if runs else (made, loss)) if position is not None
        ]
        # Nobody edits an installed library: the user's lines come first.
        users = [
            position for position in positions if not context.recording.sites[position].is_installed
        ]
        site = next(iter(users or positions), None)
        return self.finding(
            context,
            message=_message(context, parts, runs=runs) + _how(context, replaced),
            remedy="call it in the forward, or remove it"
            if not runs and all(_is_unread(context, part) for part in parts)
            else _remedy(runs=runs, dropped=dropped, replaced=replaced),
            site=site,
            related=(
                position
                for position in _related(reach, parts, runs=runs)
                if position is not None and not _is_at(position, context.site(site))
            ),
            severity=_severity(reach, parts, runs=runs, is_replaced=replaced is not None),
            parameters=parameters,
            evidence={
                "parameters_unused": len(parameters),
                "parameters_learning": len(reach.learning),
                "runs": runs,
            },
            count=len(parameters),
        )


def _line_of_terms(context: RecordingIndex) -> int | None:
    """Return the line outside of models that adds up the terms of the loss, before its mean."""
    nodes = context.recording.nodes
    node = context.first.nodes[0] if context.first.nodes else None
    while node is not None:
        inputs = context.successors.get(node.index, ())
        if node.operation == "AddBackward0" and len(inputs) > 1:
            return node.site if node.module_call is None else None
        is_passed = node.kind == "view" or node.operation.startswith(_AROUND_TERMS)
        node = nodes[inputs[0].node] if is_passed and len(inputs) == 1 else None
    return None


def _without_model(context: RuleContext) -> frozenset[int]:
    """Return the parameters of optimizers that are in no model, mostly replaced ones."""
    if context.run is None:
        return frozenset()
    return frozenset(p.index for p in context.recording.parameters if not context.owner(p.index))


def _remedy(*, runs: bool, dropped: bool, replaced: OverwrittenRecord | None) -> str:
    if replaced is not None:
        return f"compute the new value of `{replaced.name}` from the one before it"
    if dropped:
        return "use the output in the forward, or remove the module"
    if runs:
        return "use the output in the loss, or remove the module"
    return "remove unneeded modules, or freeze them with `requires_grad_(False)`"


def _is_dropped(context: RecordingIndex, parameters: list[int]) -> bool:
    """Return whether the model returns nothing that it computes from some parameters.

    Behind a cut it may return what no gradient comes to, as a prediction by `argmax`.
    """
    dropped = {p for one in context.recording.evidence_of(DroppedRecord) for p in one.parameters}
    cut = {parameter for cut in context.recording.cuts for parameter in cut.parameters}
    return dropped - cut >= set(parameters)


def _dropping(reach: Reach, parts: list[Part]) -> int | None:
    """Return the line of the last call, whose output is dropped."""
    last = max((_outermost(_calls(reach, part))[-1] for part in parts), key=lambda c: c.index)
    return last.site


def _overwritten(reach: Reach, parts: list[Part]) -> OverwrittenRecord | None:
    """Return the assignment that drops what some parts made."""
    calls = [call for part in parts for call in _outermost(_calls(reach, part))]
    sites = [site for call in calls if (site := reach.indexed.site(call.site)) is not None]
    for record in reach.recording.evidence_of(OverwrittenRecord):
        at = {site.line for site in sites if site.file == record.file}
        if any(record.first <= line <= record.last for line in at):
            return record
    return None


def _overwritten_loss(context: RecordingIndex, loss: int | None) -> OverwrittenRecord | None:
    """Return the assignment of the loss in a loop that drops those of the passes before."""
    site = context.site(loss)
    if site is None:
        return None
    for record in context.recording.evidence_of(OverwrittenRecord):
        in_loop = context.site(record.site)
        if in_loop is None or in_loop.line != record.first or site.file != record.file:
            continue
        if record.first <= site.line <= record.last:
            return record
    return None


def _how(context: RecordingIndex, replaced: OverwrittenRecord | None) -> str:
    site = None if replaced is None else context.site(replaced.site)
    if replaced is None or site is None:
        return ""
    if replaced.first <= site.line <= replaced.last:
        return f": each pass of the loop overwrites `{replaced.name}`"
    return f": line {site.line} overwrites `{replaced.name}`"


def _outermost(calls: list[ModuleCallRecord]) -> list[ModuleCallRecord]:
    """Return the calls that no other of these calls made."""
    # A layer that runs inside of another unused one is dropped with it.
    positions = {call.index for call in calls}
    return [call for call in calls if call.parent not in positions]


def _is_at(position: RelatedLocation, site: Site | None) -> bool:
    return site is not None and (position.file, position.line) == (site.file, site.line)


def _message(context: RecordingIndex, parts: list[Part], *, runs: bool) -> str:
    what = f"{named(parts)} ({counted(sum(len(p.parameters) for p in parts), 'parameter')})"
    several = len(parts) > 1
    if all(part.module is None for part in parts):
        verbs = "require grad but do" if several else "requires grad but does"
        return f"{named(parts)} {verbs} not affect the loss"
    if runs:
        verb, it = ("run", "them") if several else ("runs", "it")
        return f"{what} {verb}, but the loss does not use {it}"
    unread = all(_is_unread(context, part) for part in parts)
    end = ", and no code reads " + ("them" if several else "it") if unread else ""
    return f"{what} {'are' if several else 'is'} never called{end}"


def _parent(context: RecordingIndex, part: Part) -> int | None:
    if part.module is None:
        (parameter,) = part.parameters
        return context.recording.parameters[parameter].module
    return context.recording.modules[part.module].parent


def _calls(reach: Reach, part: Part) -> list[ModuleCallRecord]:
    """Return the calls of a part or its content; none for a single parameter."""
    if part.module is None:
        return []
    calls = reach.recording.calls
    return [call for call in calls if part.module in reach.subtrees.lineage(call.module)]


def _related(reach: Reach, parts: list[Part], *, runs: bool) -> Iterator[RelatedLocation | None]:
    for part in parts if runs else ():
        yield reach.indexed.related(_calls(reach, part)[0].site, f"{part.name} runs here")
        yield reach.indexed.related(part.site, f"{part.name} is made here")


def _severity(reach: Reach, parts: list[Part], *, runs: bool, is_replaced: bool) -> Severity:
    if is_replaced or not reach.learning:
        return "error"
    if not runs and all(
        _may_wait(reach, part) or _is_constant(reach, part) or _is_of_borrowed_model(reach, part)
        for part in parts
    ):
        return "note"
    if runs and all(_is_of_dropped_call(reach, part) for part in parts):
        return "note"
    held = reach.is_held([parameter for part in parts for parameter in part.parameters])
    return "note" if held is False or all(_is_library(reach, p) for p in parts) else "warning"


def _may_wait(reach: Reach, part: Part) -> bool:
    """Return whether a part is a module that other code may call, as for another task."""
    return part.module is not None and not _is_unread(reach.indexed, part)


def _is_unread(context: RecordingIndex, part: Part) -> bool:
    return any(
        record.module == part.module for record in context.recording.evidence_of(UnreadModuleRecord)
    )


def _is_constant(reach: Reach, part: Part) -> bool:
    """Return whether a parameter is the bias of a layer that learns.

    A loss of derivatives, as of the forces of an energy, does not depend on the last bias.
    """
    if part.module is not None:
        return False
    (index,) = part.parameters
    parameter = reach.recording.parameters[index]
    others = (p for p in reach.recording.parameters if p.module == parameter.module)
    learns = any(other.index in reach.learning for other in others)
    return learns and len(parameter.shape.dims) == 1 and parameter.name.endswith("bias")


def _is_of_borrowed_model(reach: Reach, part: Part) -> bool:
    """Return whether a part is of a model that is not called, but whose layers another uses.

    What is left of it is for another task, as the class token in masked pre-training.
    """
    owner = _parent(reach.indexed, part)
    called = {call.module for call in reach.recording.calls}
    if owner is None or owner in called:
        return False
    around = set(reach.subtrees.lineage(owner)) - {owner}
    layers = {module for module in called if owner in reach.subtrees.lineage(module)}
    return bool(layers) and not around.isdisjoint(called)


_DROPPED = re.compile(r"(_\s*=\s*)?(?!return\b|yield\b|await\b)[\w.]+\(.*\)")
"""A call whose result is not used."""


def _is_of_dropped_call(reach: Reach, part: Part) -> bool:
    """Return whether a statement calls a model around a part, and drops the result.

    Where other parts of that model learn, it is called for what hooks take from inside of it.
    """
    around = set(reach.subtrees.lineage(part.module)) if part.module is not None else set()
    for call in reach.recording.calls:
        site = reach.indexed.site(call.site)
        if call.module not in around or site is None or not _DROPPED.fullmatch(site.source.strip()):
            continue
        learning = (reach.recording.parameters[index].module for index in reach.learning)
        if any(call.module in reach.subtrees.lineage(m) for m in learning if m is not None):
            return True
    return False


def _is_library(reach: Reach, part: Part) -> bool:
    """Return whether an installed library wrote a part: it may make more than this loss uses."""
    site = reach.indexed.site(part.site)
    if site is None:
        owner = _parent(reach.indexed, part) if part.module is None else part.module
        inside = (c for c in reach.recording.calls if c.parent is not None)
        below = (c for c in inside if reach.recording.calls[c.parent or 0].module == owner)
        site = next((reach.indexed.site(c.site) for c in below if c.site is not None), None)
    return site is not None and site.is_installed
