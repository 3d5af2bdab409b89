"""GS603: updates that are smaller than the weights can hold."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import StepEvent
from gradscope.recording.evidence.parameters import CastRecord
from gradscope.recording.evidence.training import ArgumentKind, RoundedUpdate
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_TORCHS = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop")
"""Optimizers that round every weight to the nearest number."""
_SPACING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Largest distance to the midpoint between neighbouring numbers, relative to the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostUpdate(Rule):
    """Steps change nothing because updates are smaller than the spacing of half-precision weights.

    What it finds:
        Weights in bfloat16 or float16 that the optimizer updates directly, if most of their
        elements stay the same after a step although they have a gradient.

    Why it matters:
        An update below half the distance to the next number is rounded away, and so is the next
        one: updates never add up. The loss falls a little and then stalls, earlier for smaller
        learning rates.

    How it is measured:
        In some steps, the rule counts the elements that have a gradient and are bit-identical after
        the step, relative to all elements that have a gradient. It judges the median over these
        steps, without steps whose learning rate is below half of the run's largest. It points to
        the only line that converts to this type in the files that make the weights, or else to the
        optimizer.

    How to fix it:
        Keep the weights in float32 and compute in half precision with `torch.autocast`. Or keep a
        float32 copy for the optimizer, or use an optimizer that rounds stochastically.

    When it may be wrong:
        The rule judges only torch's own optimizers. Others may round stochastically, or carry the
        remainder from step to step.

    Source:
        Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740), section 3.1.
        Measured, change of accuracy by share of lost elements: none at 0.40, -0.06 at 0.67, -0.21
        at 0.86, -0.19 at 0.93.
    """

    code: ClassVar[str] = "GS603"
    name: ClassVar[str] = "lost-update"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "precision"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_lost"),)

    warning: float = 0.5
    """Share of elements, 0 to 1. Measured: at 0.40 the accuracy is unchanged, at 0.67 it is not."""
    error: float = 0.8
    """Share of elements, 0 to 1. Measured: at 0.86 the accuracy falls by 0.21."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer of torch's own."""
        by_optimizer: dict[int, list[RoundedUpdate]] = {}
        for record in context.recording.evidence_of(RoundedUpdate):
            by_optimizer.setdefault(record.optimizer, []).append(record)
        for position, records in by_optimizer.items():
            if context.shared(Windows).optimizers[position].class_name in _TORCHS:
                yield from self._judged(context, position, records)

    def _judged(
        self, context: RuleContext, position: int, records: Sequence[RoundedUpdate]
    ) -> Iterator[Finding]:
        rates = _rates(context, position)
        highest = max(rates.values(), default=0.0)
        by_step: dict[int, list[RoundedUpdate]] = {}
        for record in records:
            # A rate that is not known counts as the highest.
            if rates.get(record.step, highest) >= highest / 2 and highest > 0:
                by_step.setdefault(record.step, []).append(record)
        shares = {step: _share(ones) for step, ones in by_step.items()}
        known = [share for share in shares.values() if share is not None]
        if not known:
            return
        share = median(known)
        optimizer = context.shared(Windows).optimizers[position]
        context.measured(
            self.code,
            "share_lost",
            share,
            self.warning,
            subject=optimizer.class_name,
            site=optimizer.site,
        )
        if share < self.warning:
            return
        last = by_step[max(by_step)]
        lost = [one.parameter for one in last if one.moving and _lost(one) >= self.warning]
        types = {context.recording.parameters[one.parameter].shape.dtype for one in last}
        # Of both, `bfloat16` is the coarser one, and the first by name.
        dtype = min(types)
        cast = _cast(context, dtype)
        yield self.finding(
            context,
            message=(
                f"{share:.0%} of the elements that have a gradient are the same after a step of "
                f"{optimizer.class_name}: {dtype} cannot hold changes that small"
            ),
            remedy="keep the weights in float32 and compute under torch.autocast",
            site=cast or optimizer.site,
            related=(context.related(optimizer.site, "the optimizer") if cast else None,),
            severity="error" if share >= self.error else None,
            parameters=lost,
            evidence={
                "share_lost": share,
                "limit": self.error if share >= self.error else self.warning,
                "learning_rate": highest,
                "smallest_change_kept": _SPACING.get(dtype),
                "steps_measured": len(known),
            },
            count=len(lost),
            step=min(by_step),
        )


def _rates(context: RuleContext, optimizer: int) -> Mapping[int, float]:
    """Return the learning rate of an optimizer's steps, by step."""
    return {
        event.step: rate
        for event in context.shared(Windows).events
        if isinstance(event, StepEvent)
        and event.optimizer == optimizer
        and (rate := event.lr) is not None
    }


def _cast(context: RuleContext, dtype: str) -> Site | None:
    """Return the only line that makes weights of a type, None if several may be it."""
    lines = {
        captured.recording.sites[record.site]
        for captured in context.recording.captured_steps
        for record in captured.recording.evidence_of(CastRecord)
        if record.dtype == dtype
    }
    return lines.pop() if len(lines) == 1 else None


def _share(records: Sequence[RoundedUpdate]) -> float | None:
    moving = sum(one.moving for one in records)
    return sum(one.unchanged for one in records) / moving if moving else None


def _lost(record: RoundedUpdate) -> float:
    return record.unchanged / record.moving
