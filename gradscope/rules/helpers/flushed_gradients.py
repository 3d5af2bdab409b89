"""How much of a gradient half precision flushes to zero, and whether the loss is scaled."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import FlushedGradient, FlushRecord
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import SEVERITIES, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Evidence, Lasting, Rule

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
        # Further factors are those of elements, and no scale.
        if stat is None or stat.gradient is None or stat.gradient.numel != 1:
            break
        # The derivative of the loss by a number is the product of all factors after it.
        scale = stat.gradient.norm
        # Nodes of the first graph are a part of the recording's: positions are counted from its
        # first one.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRule(Rule):
    """A rule on gradients that half precision flushes to zero."""

    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "precision"
    lasts: ClassVar[Lasting] = "on"
    needs: ClassVar[Needs] = (probe_ran("half precision"),)
    explains: ClassVar[tuple[str, ...]] = ("GS102", "GS105", "GS109", "GS110", "GS204")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_flushed"),)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe", reveals=("GS109", "GS110"), settles=("GS601", "GS604")
    )

    note: float = 0.05
    """Share of elements, 0 to 1. Measured: at 0.05 the accuracy is unchanged."""
    warning: float = 0.25
    """Share of elements, 0 to 1. Measured: at 0.28 the accuracy changes by -0.004."""
    error: float = 0.75
    """Share of elements, 0 to 1. Measured: at 0.94 the accuracy changes by -0.12."""

    def flushed(self, context: RuleContext) -> Iterator[tuple[FlushRecord, Severity]]:
        """Yield the records of a share that does harm, and its severity."""
        for record in context.recording.evidence_of(FlushRecord):
            share = share_flushed(record)
            context.measured(
                self.code, "share_flushed", share, self.note, subject=record.dtype, site=record.site
            )
            # Severities are ordered from the worst: the first limit that is reached counts.
            limits = {"error": self.error, "warning": self.warning, "note": self.note}
            reached = [severity for severity in SEVERITIES if share >= limits[severity]]
            if reached:
                yield record, reached[0]

    def evidence_of(self, record: FlushRecord, severity: Severity) -> Evidence:
        """Return the numbers of a finding."""
        return {
            "share_flushed": share_flushed(record),
            "limit": getattr(self, severity),
            "flushed": record.flushed,
            "elements": record.elements,
        }
