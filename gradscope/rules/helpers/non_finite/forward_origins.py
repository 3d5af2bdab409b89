"""The origins of non-finite values in the forward, and the certainty of their lines."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradscope.analysis.surroundings import StepBefore
from gradscope.frozen import dataclass
from gradscope.phrasing import literal
from gradscope.recording.evidence.failures import LateCapture, NonfiniteRecord
from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.causes import Cause, cause_in_forward, remedy_before_where
from gradscope.rules.helpers.non_finite.gradient_breaks import (
    GradientBreak,
    forward_inputs,
    gradient_breaks,
    nonfinite_nodes,
)
from gradscope.rules.helpers.source_text import line_of


def certainty(context: RuleContext, node: int | None) -> str:
    """Return the end of a message on how a line is known; empty if it was observed.

    Args:
        context: What is judged.
        node: The operation at that line; None for what is none.
    """
    late, how = _late_capture(context), _line_is(context, node)
    if late is None or how is None or how == "exact":
        return ""
    return {
        "matched": f" (its line is from the same operation in step {late.matched_step})",
        "module": " (its line is unknown: its module was made here)",
        "after": " (its line is unknown: it comes right after this one)",
        "after module": " (its line is unknown: it comes after the module that was made here)",
    }[how]


def line_evidence(
    context: RuleContext, node: int | None
) -> Mapping[str, float | str | bool | None]:
    """Return how a line is known, for those who read findings by program."""
    late = _late_capture(context)
    if late is None:
        return {}
    return {
        "line_is": _line_is(context, node),
        "matched_step": late.matched_step,
        "operation_is": "one of several" if late.unsure else "exact",
    }


def line_near(context: RuleContext, node: int | None) -> int | None:
    """Return the line of an operation, else of the nearest one before it that has one."""
    near = _node_near(context, node)
    return None if near is None else line_of(context, context.recording.nodes[near])


def _node_near(context: RuleContext, node: int | None) -> int | None:
    waiting, seen = deque(() if node is None else (node,)), set[int]()
    while waiting:
        position = waiting.popleft()
        if line_of(context, context.recording.nodes[position]) is not None:
            return position
        seen.add(position)
        onward = (ref.node for ref in context.successors.get(position, ()))
        waiting += [one for one in onward if one not in seen]
    return None


def other_locations(context: RuleContext, site: int | None) -> Iterator[RelatedLocation | None]:
    """Yield the lines of operations that may as well have been the first to break."""
    late = _late_capture(context)
    lines = (
        {line_of(context, context.recording.nodes[node]) for node in late.unsure} if late else set()
    )
    for line in sorted(one for one in lines if one is not None and one != site):
        yield context.related(line, "or here: the result of this operation was not saved")


def _late_capture(context: RuleContext) -> LateCapture | None:
    """Return how a backward was captured without its forward, None for any other."""
    return next(iter(context.recording.evidence_of(LateCapture)), None)


def _line_is(context: RuleContext, node: int | None) -> str | None:
    """Return how the line of an operation is known, None if it needs no remark."""
    late = _late_capture(context)
    if late is None:
        return None
    if late.lines == "watched":
        return "exact"
    if node is None:
        return "matched" if late.lines == "matched" else None
    near = _node_near(context, node)
    if near is None:
        return None
    is_seen = context.recording.nodes[near].site is not None
    if near == node:
        return "matched" if is_seen else "module"
    return "after" if is_seen else "after module"


_OWNERS = {
    "parameter": "parameter {}",
    "buffer": "buffer {}",
    "batch": "the batch",
    "tensor": "a tensor that is no parameter",
}

_OWNERS_REMEDY = {
    "parameter": "initialise it (torch.empty leaves whatever was in memory), or look for the step "
    "or checkpoint that broke it",
    "buffer": "check what writes to it: running statistics keep a NaN permanently",
    "batch": "clean the data: torch.nan_to_num, or drop rows for which torch.isfinite is false",
    "tensor": "check how it was made, and test it with torch.isfinite",
}

_STEP_REMEDY = (
    "check the gradients and the size of that step: lower the learning rate, warm it up, or clip "
    "the gradient norm before it"
)

_SCRIPT_REMEDY = (
    "look for a line after the step that writes to the weights, such as copy_(), an average of "
    "weights or a loaded checkpoint, and check what it writes with torch.isfinite"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOrigin:
    """What first held or made numbers that are not finite, and matter."""

    root: NonfiniteRecord
    seen: NonfiniteRecord
    """Operation that turned the root's infinity into NaN, or that used the root first; otherwise
    the root.
    """
    cause: Cause
    site: int | None
    breaks: tuple[GradientBreak, ...]
    """Operations at which finite gradients met these numbers; empty if the loss is not finite."""
    step_before: StepBefore | None = None
    """Last step before it that held a root parameter; None for any other root."""

    @property
    def made(self) -> str:
        """Description of the non-finite value, its operation, and the reason."""
        if self.root.source not in _OWNERS:
            return f"{self.cause.function} makes {self.root.makes}{self.cause.reason}"
        elements = "1 element" if self.root.broken == 1 else f"{self.root.broken} elements"
        held = (
            f"{self.cause.function} holds {self.root.makes} in {elements} before the forward begins"
        )
        before = self.step_before
        if before is None:
            return held
        if not self.is_by_step:
            return (
                f"{held}, although step {before.step:,} left it finite: the script wrote it later"
            )
        rate = "" if before.rate is None else f" with lr={literal(before.rate)}"
        return f"{held}: step {before.step:,} wrote it{rate}"

    @property
    def is_by_step(self) -> bool:
        """Whether the last step wrote it, and not the script itself."""
        before = self.step_before
        return before is not None and self.root.name in before.parameters

    @property
    def evidence(self) -> Mapping[str, float | str | bool | None]:
        """The measured numbers."""
        return {
            "operation": self.root.operation,
            "nonfinite_elements": self.root.broken,
            "reaches_loss": self.seen.reaches_loss,
            **self.cause.evidence,
        }

    def modules(self, context: RuleContext) -> tuple[str, ...]:
        """Return the module that made it; empty if it is not part of the graph."""
        if self.root.tensor is None:
            return ()
        module = context.module_of(context.recording.nodes[self.root.tensor.node])
        return (module,) if module else ()

    def position(self, context: RuleContext) -> int | Site | None:
        """Return the line for the finding; for a parameter that a step broke, that of the step."""
        before = self.step_before
        if before is not None and before.site is not None and self.is_by_step:
            return before.site
        return line_near(context, self.node) if self.site is None else self.site

    @property
    def node(self) -> int | None:
        """Operation that made it; None if it existed before."""
        return None if self.root.tensor is None else self.root.tensor.node

    def taken_in(self, context: RuleContext) -> RelatedLocation | None:
        """Return the line at which NaN was made of it, if that is another."""
        if self.seen.site == self.site:
            return None
        owned = self.seen is self.root and self.root.source in _OWNERS
        what = "takes it in" if owned else "makes NaN of it"
        return context.related(self.seen.site, f"{self.seen.operation.strip('_')} {what}")


def forward_origins(context: RuleContext) -> tuple[ForwardOrigin, ...]:
    """Return what made the loss not finite, one origin a line; else what gradients broke on."""
    records = {one.index: one for one in context.recording.evidence_of(NonfiniteRecord)}
    lost = any(one.reaches_loss for one in records.values())
    by_line: dict[int | None, ForwardOrigin] = {}
    for seen in records.values():
        # A loss that is not finite breaks all gradients: where they break tells nothing more.
        breaks = () if lost else tuple(_broken_on(context, seen))
        if not (seen.reaches_loss or breaks):
            continue
        origin = _origin(context, records, seen, breaks)
        earlier = by_line.setdefault(_line(context, origin.root), origin)
        if earlier is not origin:
            more = tuple(one for one in breaks if one not in earlier.breaks)
            by_line[_line(context, origin.root)] = replace(earlier, breaks=(*earlier.breaks, *more))
    return tuple(by_line.values())


def _origin(
    context: RuleContext,
    records: dict[int, NonfiniteRecord],
    seen: NonfiniteRecord,
    breaks: tuple[GradientBreak, ...],
) -> ForwardOrigin:
    root = _root(records, seen)
    if root.source in _OWNERS:
        cause = Cause(
            function=_OWNERS[root.source].format(root.name),
            reason="",
            remedy=_OWNERS_REMEDY[root.source],
            evidence={},
        )
    else:
        cause = cause_in_forward(root)
        chosen = root.tensor and remedy_before_where(context, root.tensor.node, cause.function)
        cause = replace(cause, remedy=chosen or cause.remedy)
    before = _step_before(context, root)
    if before is not None:
        is_by_step = root.name in before.parameters
        cause = replace(cause, remedy=_STEP_REMEDY if is_by_step else _SCRIPT_REMEDY)
    return ForwardOrigin(
        root=root,
        seen=seen,
        cause=cause,
        site=_mask(records, root) if root.blocked_rows else _line(context, root),
        breaks=breaks,
        step_before=before,
    )


def _step_before(context: RuleContext, root: NonfiniteRecord) -> StepBefore | None:
    """Return the last step of a run that may have written to a parameter."""
    steps = () if context.run is None or root.source != "parameter" else context.run.steps_before
    written = (one for one in steps if root.name in one.parameters | one.left_sound)
    return max(written, key=lambda one: one.step, default=None)


def _root(records: dict[int, NonfiniteRecord], one: NonfiniteRecord) -> NonfiniteRecord:
    """Return the origin of the infinity from which an operation made NaN, unless intended."""
    if one.blocked_rows or one.because_of is None:
        return one
    earlier = records.get(one.because_of)
    # Infinities that the code writes, or keeps outside of the parameters, are mostly masks.
    meant = earlier is None or earlier.source in ("constant", "buffer", "tensor")
    return one if meant or earlier is None else _root(records, earlier)


def _mask(records: dict[int, NonfiniteRecord], softmax: NonfiniteRecord) -> int | None:
    """Return the line that wrote -inf into scores, or that of their softmax."""
    mask = None if softmax.because_of is None else records.get(softmax.because_of)
    writes = mask is not None and mask.source == "constant" and mask.tensor is not None
    return mask.site if mask is not None and writes else softmax.site


def _line(context: RuleContext, root: NonfiniteRecord) -> int | None:
    """Return the line of an operation, or for a parameter the one that made it."""
    for parameter in context.recording.parameters:
        if root.source == "parameter" and parameter.name == root.name:
            return root.site if parameter.site is None else parameter.site
    if root.site is not None or root.tensor is None:
        return root.site
    return line_of(context, context.recording.nodes[root.tensor.node])


def _broken_on(context: RuleContext, record: NonfiniteRecord) -> Iterator[GradientBreak]:
    """Yield the gradients that broke on a value of the forward.

    NaN breaks them wherever it went. Infinity breaks them where it was the input of an operation:
    with a finite input, the operation itself is the cause.
    """
    is_infinite = record.makes == "infinity"
    # Outside of the graph, nothing shows where an infinity went.
    if record.tensor is None and (is_infinite or record.source not in _OWNERS):
        return
    if is_infinite and record.source != "operation":
        return  # as the -inf of a mask is meant
    broken = nonfinite_nodes(context)
    after = None
    if record.tensor is not None:
        after = _after(context, record.tensor.node, broken if is_infinite else None)
    for one in context.shared(gradient_breaks):
        position = one.node.index
        inputs = {ref.node for ref in forward_inputs(context, position)}
        met = inputs & (after or set()) if is_infinite else {position, *inputs}
        if one.parameters and (after is None or position in after) and not broken.isdisjoint(met):
            yield one


def _after(context: RuleContext, node: int, within: frozenset[int] | None) -> set[int]:
    """Return a node and those that its output led to.

    Args:
        context: What is judged.
        node: The node.
        within: Nodes that are followed further, beside views; None for all.
    """
    waiting, seen = [node], {node}
    while waiting:
        position = waiting.pop()
        is_view = context.recording.nodes[position].kind == "view"
        # Views are not measured.
        if within is not None and not is_view and position not in within:
            continue
        for user in context.users.get(position, ()):
            if user not in seen:
                seen.add(user)
                waiting.append(user)
    return seen
