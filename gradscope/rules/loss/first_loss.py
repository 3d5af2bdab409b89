"""GS706: first losses of a classifier that no untrained model should have."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short, times_text
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLoss(Rule):
    """The first loss of a classifier is far from that of an untrained model.

    What it finds:
        A cross-entropy over C classes whose first loss is far above ln(C), because the outputs are
        much too large, or far below it although the model has not learned, because the target leaks
        into its input.

    Why it matters:
        Too large outputs cost the first thousands of steps, which only shrink them, and saturate
        the softmax. A loss that is low at once is no sign of a good model: it has seen the answer.

    How it is measured:
        The first backward starts from a single mean cross-entropy, or binary cross-entropy with
        logits for C = 2. Its value is divided by ln(C). It is a note above `high` and below `low`.

    How to fix it:
        Initialise the last layer smaller, and normalise the inputs. If the loss is too low, look
        for the target among the inputs.

    When it may be wrong:
        If the model comes from a checkpoint, a low first loss is correct. A loss with weights by
        class, or over classes of very unequal size, has another level.

    Source:
        Karpathy, "A Recipe for Training Neural Networks", "verify loss at init".
        Measured: of 133 healthy architectures and look-alikes of the tests, 131 have 0.76 to 1.79
        times ln(C) at their first loss; below `low` are a converged model and one of MoCo, whose
        queue is empty at first.
    """

    code: ClassVar[str] = "GS706"
    name: ClassVar[str] = "first-loss"
    level: ClassVar[Severity] = "note"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="ratio", limit="limit"),)

    high: float = 3.0
    """Ratio of the loss to ln(C) above which it is too high. Measured."""
    low: float = 0.1
    """Ratio below which it is too low. Chosen: the model is right with probability C**-0.1, which
    is 0.79 for ten classes."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if context.run is None else "it judges inspected models, not runs"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a first loss that is too high or too low."""
        found = _ratio(context) if context.run is None else None
        if found is not None:
            for limit, side in ((self.high, "above"), (self.low, "below")):
                context.measured(
                    self.code,
                    "ratio",
                    found.ratio,
                    limit,
                    fires="above" if side == "above" else "below",
                    site=found.site,
                )
        if found is not None and (found.ratio > self.high or found.ratio < self.low):
            yield self._finding(context, found)

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield the same of the first backward of a run."""
        # Later captured steps have the loss of a model that has learned.
        for captured in context.recording.captured_steps[:1]:
            if captured.step == 0 and captured.order < _FIRST_EVENTS:
                own = RuleContext(captured.recording, measurements=context.measurements, step=0)
                yield from self.check(own)

    def _finding(self, context: RuleContext, found: "_First") -> Finding:
        is_high = found.ratio > self.high
        return self.finding(
            context,
            message=(
                f"the first loss is {short(found.loss)}, {times_text(found.ratio)} that of "
                f"{found.classes} equally likely classes, {short(math.log(found.classes))}"
            ),
            remedy="initialise the last layer smaller, or normalise the inputs"
            if is_high
            else "look for the target among the inputs, unless the weights come from a checkpoint",
            site=found.site,
            evidence={
                "loss": found.loss,
                "classes": found.classes,
                "ratio": found.ratio,
                "limit": self.high if is_high else self.low,
            },
            step=0,
        )


_FIRST_EVENTS = 16
"""Number of first events of a run among which the first backward must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """The first loss of a classifier."""

    loss: float
    classes: int
    ratio: float
    site: int | None


def _ratio(context: RuleContext) -> _First | None:
    """Return the first loss, if backward starts from a mean cross-entropy."""
    step = context.first.step
    loss = None if step is None else step.loss
    if loss is None or not math.isfinite(loss):
        return None
    for record in context.recording.evidence_of(ComparisonRecord):
        classes = classes_of(record)
        is_root = context.recording.nodes[record.result.node].depth == 0
        if classes is None or not is_root:
            continue
        ratio = loss / math.log(classes)
        rows = math.prod(record.left.dims) / (classes if record.operation in _OVER_CLASSES else 1)
        # A sum over the rows is about `rows` times a guess, as far as a first loss is one.
        if rows > 1 and 0.8 < ratio / rows < 1.25:
            return None  # a sum
        return _First(loss=loss, classes=classes, ratio=ratio, site=record.site)
    return None


_OVER_CLASSES = ("cross_entropy", "nll_loss")


def classes_of(record: ComparisonRecord) -> int | None:
    """Return the number of classes of a loss, None if it is not a classifier's."""
    dims = record.left.dims
    if record.operation == "binary_cross_entropy_with_logits":
        # Each logit chooses between two classes by itself, however many logits there are.
        return 2
    if record.operation not in _OVER_CLASSES or not dims:
        return None
    # `cross_entropy` takes `[classes]` for one example, otherwise `[examples, classes, …]`.
    classes = dims[1] if len(dims) > 1 else dims[0]
    return classes if classes > 1 else None
