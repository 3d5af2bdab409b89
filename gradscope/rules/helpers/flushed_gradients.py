"""How much of a gradient half precision flushes to zero, and whether the loss is scaled."""

from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import FlushedGradient, FlushRecord
from gradscope.recording.finding import Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext

SMALLEST = {
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
    "float8_e4m3fn": 2.0**-9,
    "float8_e4m3fnuz": 2.0**-10,
    "float8_e5m2": 2.0**-16,
    "float8_e5m2fnuz": 2.0**-17,
}
"""Smallest number above zero, by type."""

LEAST_SCALE = 16.0
"""Minimum factor on the loss that counts as a scale; a smaller one is a weight."""

_SCALARS = frozenset({"DivBackward0", "MulBackward0"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of flushed elements, 0 to 1."""

    note: float
    warning: float
    error: float

    def severity(self, share: float) -> Severity | None:
        """Return the severity of a share, None if it is harmless."""
        if share >= self.error:
            return "error"
        if share >= self.warning:
            return "warning"
        return "note" if share >= self.note else None


def share_flushed(one: FlushRecord | FlushedGradient) -> float:
    """Return the share of elements that were flushed of those that a larger loss shows."""
    return one.flushed / one.elements if one.elements else 0.0


def parameters_flushed(record: FlushRecord, least: float) -> tuple[int, ...]:
    """Return the parameters with at least this share of flushed elements."""
    return tuple(one.parameter for one in record.gradients if share_flushed(one) >= least)


def loss_scale(context: RuleContext) -> float:
    """Return the last factor on the loss; 1 without one."""
    node, scale = 0, 1.0
    nodes = context.first.nodes
    while nodes and nodes[node].operation in _SCALARS:
        inputs = context.successors.get(nodes[node].index, ())
        stat = context.tensor_stat(inputs[0].node, inputs[0].slot) if len(inputs) == 1 else None
        if stat is None or stat.gradient is None or stat.gradient.numel != 1:
            break
        scale = stat.gradient.norm
        node = inputs[0].node - nodes[0].index
    return scale


def is_scaled(context: RuleContext) -> bool:
    """Return whether the loss is multiplied by a loss scale."""
    return loss_scale(context) >= LEAST_SCALE


def loss_site(context: RuleContext) -> Site | None:
    """Return the line that made the loss."""
    return next(
        (context.site(node.site) for node in context.first.nodes if node.site is not None), None
    )
