"""What every format says of a report as a whole, in words."""

import math
from collections.abc import Callable

from gradscope.analysis.report import Report
from gradscope.analysis.rows import OtherStep
from gradscope.phrasing import counted

SYNTHETIC_LOSS = (
    "the loss is made up, because the target has none: these are not the gradients of training"
)


def parameter_counts(report: Report) -> str:
    """Return `5 parameters (1 without a gradient, 2 non-finite)`, troubles alone in brackets."""
    summary = report.summary
    troubles = (
        (summary.none, "without a gradient"),
        (summary.unknown, "not measured"),
        (summary.nonfinite_parameters, "non-finite"),
        (summary.zero, "zero"),
    )
    return counted(summary.parameters, "parameter") + _in_brackets(troubles)


def tensor_counts(report: Report) -> str:
    """Return `7 tensors (2 non-finite)`, likewise."""
    summary = report.summary
    troubles = ((summary.nonfinite_tensors, "non-finite"),)
    return counted(summary.tensors, "tensor") + _in_brackets(troubles)


def training_text(report: Report, arrow: str, written: Callable[[float | None], str]) -> str:
    """Return `50 steps with AdamW(lr=0.001): loss 2.31 → 0.42, norm 1.20 → 0.300`.

    A norm on the way that is above those at both ends is told too.

    Args:
        report: Of a step that was trained up to.
        arrow: What is between the two.
        written: Writes a number.
    """
    first, summary = report.training[0], report.summary
    article = "" if report.target.optimizer else "an assumed "
    ends = (
        f"{name} {written(before)} {arrow} {written(after)}"
        for name, before, after in (
            ("loss", first.loss, summary.loss),
            ("norm", first.grad_norm, summary.grad_norm),
        )
        if before is not None
    )
    text = f"{counted(len(report.training), 'step')} with {article}{first.optimizer}"
    peak = _peak(report)
    steps = "" if peak is None else counted(peak.step, "step")
    most = "" if peak is None else f" (largest {written(peak.grad_norm)} after {steps})"
    return f"{text}: {', '.join(ends)}{most}"


def _peak(report: Report) -> OtherStep | None:
    """Return the step with the largest norm, None where that is the first or the judged one."""
    norms = [-1.0 if step.grad_norm is None else step.grad_norm for step in report.training]
    largest = max(norms)
    last = report.summary.grad_norm
    is_inside = largest > norms[0] and (last is None or largest > last or not math.isfinite(last))
    return report.training[norms.index(largest)] if is_inside else None


def _in_brackets(troubles: tuple[tuple[int, str], ...]) -> str:
    words = [f"{count:,} {what}" for count, what in troubles if count]
    return f" ({', '.join(words)})" if words else ""
