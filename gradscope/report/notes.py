"""What every format says of a report as a whole, in words."""

from gradscope.report.figures import counted
from gradscope.report.model import Report

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


def _in_brackets(troubles: tuple[tuple[int, str], ...]) -> str:
    words = [f"{count:,} {what}" for count, what in troubles if count]
    return f" ({', '.join(words)})" if words else ""
