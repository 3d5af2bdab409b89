"""What rules need to know of a recording before they can judge it."""

from collections.abc import Callable

from gradscope.analysis.windows import Windows
from gradscope.recording.events import StepEvent, only
from gradscope.recording.evidence.batches import ProbeName
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.rules.context import RuleContext

Need = Callable[[RuleContext], str | None]
"""Returns why something is not known of a recording; None if it is."""
Needs = tuple[Need, ...]


def probe_ran(name: ProbeName) -> Need:
    """Return the need for the results of a probe."""
    return lambda context: context.probe_skip_reason(name)


def has_backward(context: RuleContext) -> str | None:
    """Return why there are no gradients."""
    return None if context.has_backward else "no backward was recorded"


def has_forward_values(context: RuleContext) -> str | None:
    """Return why the values of the forward are not known."""
    is_measured = bool(context.recording.evidence_of(ForwardStat))
    return None if is_measured else "the values of the forward were not measured"


def has_step(context: RuleContext) -> str | None:
    """Return why a run has no steps."""
    is_stepped = any(only(StepEvent, context.shared(Windows).events))
    return None if is_stepped else "no optimizer stepped"
