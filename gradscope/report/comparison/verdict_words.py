"""What is worse, and what a gate says of it, in words."""

from collections.abc import Iterator, Sequence

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import ParameterPair
from gradscope.comparison.regressions import Regression
from gradscope.phrasing import counted
from gradscope.report.comparison.phrasing import change_text, limit_text, names_text
from gradscope.report.number_format import figure


def regression_text(regression: Regression, comparison: Comparison) -> str:
    """Return what is worse, by how much, and what would have passed."""
    subjects, count = regression.subjects, len(regression.subjects)
    before, after = (figure(value) for value in (regression.before, regression.after))
    moved = f"{before} → {after}"
    by = change_text(regression.before, regression.after)
    moved += f" ({by})" if by else ""
    match regression.kind:
        case "finding":
            return f"new finding {subjects[0]} {regression.message}"
        case "ending":
            return regression.message
        case "loss":
            of = f" of {subjects[0]}" if subjects else ""
            allowed = f"the limit is +{limit_text(regression.limit or 0.0)}"
            return f"loss{of}: {moved}, {allowed}"
        case "norm":
            moves = "disagree" if comparison.of_ranks else "moved"
            allowed = f"{moves} by more than {limit_text(regression.limit or 0.0)}"
            return f"{counted(count, 'gradient norm')} {allowed}, {_most(subjects)} {moved}"
        case "weights":
            return f"{counted(count, 'weight norm')} disagree, {_most(subjects)} {moved}"
        case "turned":
            return (
                f"{counted(count, 'gradient')} turned: cosine below {regression.limit:g}, "
                f"{_most(subjects)} {after}"
            )
    became = {
        "non-finite": "non-finite now",
        "lost": "lost",
        "zero": "zero now",
        "frozen": "frozen now",
    }[regression.kind]
    return f"{counted(count, 'gradient')} {became}: {names_text(subjects, comparison)}"


def _most(subjects: Sequence[str]) -> str:
    return f"{subjects[0]}:" if len(subjects) == 1 else f"worst {subjects[0]}:"


def verdict_text(comparison: Comparison) -> str:
    """Return the last line: what a gate says, or how far apart the sides are."""
    verdict = comparison.verdict
    if verdict.obstacles:
        return f"Could not compare: {'; '.join(verdict.obstacles)}."
    failed = len(verdict.regressions)
    if comparison.is_gate:
        return f"Failed: {counted(failed, 'regression')}." if failed else "Passed: no regression."
    if failed:
        verb = "exceeds" if failed == 1 else "exceed"
        return f"{counted(failed, 'difference')} {verb} the tolerance."
    if all(pair.change in ("equal", "none") for pair in _pairs(comparison)):
        return "Identical."
    return "All differences are within the tolerance."


def _pairs(comparison: Comparison) -> Iterator[ParameterPair]:
    return (pair for one in comparison.parameters for pair in one.pairs if pair is not None)
