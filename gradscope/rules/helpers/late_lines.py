"""How sure a line is, of a backward whose forward was not watched."""

from collections import deque
from collections.abc import Iterator, Mapping

from gradscope.recording.evidence.failures import LateCapture
from gradscope.recording.finding import RelatedLocation
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.upstream import line_of


def certainty(context: RuleContext, node: int | None) -> str:
    """Return the end of a message that says how a line is known; empty where it was seen.

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


def other_places(context: RuleContext, site: int | None) -> Iterator[RelatedLocation | None]:
    """Yield the lines of operations that may as well have been the first to break."""
    late = _late_capture(context)
    lines = (
        {line_of(context, context.recording.nodes[node]) for node in late.unsure} if late else set()
    )
    for line in sorted(one for one in lines if one is not None and one != site):
        yield context.related(line, "or here: the result of this operation was not saved")


def _late_capture(context: RuleContext) -> LateCapture | None:
    """Return how a backward was captured whose forward was not, None for any other."""
    return next(iter(context.recording.evidence_of(LateCapture)), None)


def _line_is(context: RuleContext, node: int | None) -> str | None:
    """Return how the line of an operation is known, None where nothing need be said."""
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
