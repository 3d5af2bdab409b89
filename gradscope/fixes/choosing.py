"""Chooses among several edits that were all tried."""

from collections.abc import Sequence
from math import inf, isfinite

from gradscope.analysis.report import Report
from gradscope.phrasing import short

_UNEVEN = ("GS101", "GS102")

Tried = tuple[bool, Report | str]
"""Whether edits are verified, and the report of the program with them."""


def best_of(tried: Sequence[Tried]) -> int:
    """Return the position of the verified edits whose program reaches the lowest loss.

    A program whose gradient grows or shrinks, if only enough for a note, comes after the others.
    The first one without any that is verified.
    """
    positions = [at for at, (is_verified, _) in enumerate(tried) if is_verified]
    return min(positions, key=lambda at: _rank(tried[at][1]), default=0)


def _rank(after: Report | str) -> tuple[int, float]:
    findings = () if isinstance(after, str) else after.findings
    return sum(one.rule in _UNEVEN for one in findings), last_loss(after)


def last_loss(after: Report | str) -> float:
    """Return the loss after the last probe step, or that of the last step of a training."""
    if isinstance(after, str):
        return inf
    steps = [probe.loss for probe in after.probes if probe.loss is not None]
    loss = steps[-1] if steps else after.summary.loss
    return loss if loss is not None and isfinite(loss) else inf


def with_loss(verdict: str, after: Report | str) -> str:
    """Return a verdict with the loss that decides."""
    if isinstance(after, str) or after.summary.loss is None or not after.probes:
        return verdict
    return (
        f"{verdict}, loss {short(after.summary.loss)} -> {short(last_loss(after))} in "
        f"{len(after.probes)} steps"
    )


def other_text(other: tuple[str, str, Tried]) -> str:
    """Return the result of edits that were not chosen."""
    added, verdict, (is_verified, after) = other
    text = f"loss {short(last_loss(after))}" if is_verified else verdict.partition(": ")[0]
    return f"tried `{added}`: {text}"
