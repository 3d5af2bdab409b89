"""GS115: attention scores or outputs that grow step by step."""

from collections.abc import Iterator
from math import isfinite
from typing import ClassVar

from gradscope.analysis.attention import LogitPoint, LogitSeries, logit_series
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsGrow(Rule):
    """Attention scores or output logits drift upwards from step to step.

    What it finds:
        A softmax whose logits grow during training far beyond useful values: attention scores, by
        head, and the log Z of the outputs before a cross-entropy.

    Why it matters:
        Such a softmax chooses one entry: its gradient is zero for all others, and the attention of
        that head no longer learns. Half precision rounds logits of that size to whole numbers. Many
        large runs diverge later.

    How it is measured:
        In the fully captured steps, the rule takes the largest magnitude of an unmasked attention
        score, by head, of at most 4 examples and 64 queries each. Fused attention keeps its scores
        to itself: they are computed again for these queries. For outputs it is the mean logarithm
        of the softmax's denominator, log Z, of at most 64 rows. The last value must be above
        `largest`, above `factor` times the first, and above `lasting` times the largest of all, and
        the value before it above half of `largest`. At least `captures` captured steps are needed.
        For outputs it is a note.

    How to fix it:
        Normalise queries and keys (QK norm), lower the learning rate, or raise the weight decay of
        their projections. For outputs, add a z-loss: `1e-4 * logits.logsumexp(-1).square().mean()`.

    When it may be wrong:
        Models whose scores have no scale, such as T5, and contrastive losses with a learnt
        temperature that is not bounded.

    Source:
        The limit of 100 by head is that of QK-clip (Kimi Team 2025, "Kimi K2", arXiv 2507.20534).
        Dehghani et al. 2023, "ViT-22B" (arXiv 2302.05442), normalises queries and keys. Wortsman et
        al. 2023 (arXiv 2309.14322) shows both drifts in small models. The z-loss is of Chowdhery et
        al. 2022, "PaLM" (arXiv 2204.02311). Measured: of 12 small language models
        with too high a learning rate all are found, with scores of 188 to 9,600. None of 18 with a
        good one is, whose largest score is 80.
    """

    code: ClassVar[str] = "GS115"
    name: ClassVar[str] = "logits-grow"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS106",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="largest_logit"),)

    largest: float = 100.0
    """Magnitude of an attention score, or of log Z. Source: QK-clip."""
    factor: float = 4.0
    """Multiple of the first value. Chosen: logits that are large from the start do not grow."""
    lasting: float = 0.5
    """Share of the largest value that the last one must have. Chosen: a passing peak is no drift.
    """
    captures: int = 4
    """Number of captured steps below which nothing is judged. Chosen."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        series = logit_series(context.recording)
        if not series:
            return "no softmax was measured in a captured step"
        if max(len(one.points) for one in series) < self.captures:
            return f"fewer than {self.captures} captured steps have measured logits"
        return None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for attention and one for outputs, whose logits grow."""
        found: dict[str, list[LogitSeries]] = {}
        for series in logit_series(context.recording):
            # NaN and infinity have rules of their own.
            if len(series.points) < self.captures or not isfinite(series.points[-1].value):
                continue
            number = "largest_logit" if series.kind == "attention" else "log_normaliser"
            context.measured(
                self.code,
                number,
                series.points[-1].value,
                self.largest,
                subject=series.module,
                site=series.site,
                step=series.points[-1].step,
            )
            if self._grows(series.points):
                found.setdefault(series.kind, []).append(series)
        for members in found.values():
            yield self._finding(context, members)

    def _grows(self, points: tuple[LogitPoint, ...]) -> bool:
        first, *_, before, last = (point.value for point in points)
        highest = max(point.value for point in points)
        # One step alone may be that of a batch of its own kind.
        is_large = last >= self.largest and before >= self.largest / 2
        return is_large and last >= self.factor * first and last >= self.lasting * highest

    def _finding(self, context: RuleContext, members: list[LogitSeries]) -> Finding:
        worst = max(members, key=lambda one: one.points[-1].value)
        first, last = worst.points[0], worst.points[-1]
        head = "" if worst.head is None else f" (head {worst.head})"
        where = f" of {worst.module}" if worst.module else ""
        is_attention = worst.kind == "attention"
        what = (
            f"the largest attention score{where}{head}" if is_attention else "log Z of the outputs"
        )
        return self.finding(
            context,
            message=(
                f"{what} grows from {short(first.value)} at step {first.step:,} to "
                f"{short(last.value)} at "
                f"step {last.step:,}"
            ),
            remedy=(
                "normalise queries and keys, or lower the learning rate"
                if is_attention
                else "add a z-loss, such as 1e-4 * logits.logsumexp(-1).square().mean()"
            ),
            site=worst.site,
            severity=None if is_attention else "note",
            modules=tuple(dict.fromkeys(one.module for one in members if one.module)),
            evidence={
                "largest_logit": last.top,
                "log_normaliser": None if is_attention else last.log_normaliser,
                "first": first.value,
                "head": worst.head,
                "limit": self.largest,
            },
            count=len(members),
            step=next(one.step for one in worst.points if one.value >= self.largest),
        )
