"""Texts and numbers of comparisons, for all formats."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from gradscope.analysis.training_run import steps_text
from gradscope.comparison.comparison import Comparison, Difference
from gradscope.comparison.curves import ComparedCurve, Parting
from gradscope.comparison.findings import ComparedFinding, Standing
from gradscope.comparison.matching import Renaming
from gradscope.comparison.parameters import CHANGES, Change, ParameterPair, share_off
from gradscope.comparison.regressions import Regression
from gradscope.comparison.side import Side, letter_of
from gradscope.phrasing import counted, literal, short
from gradscope.recording.finding import SEVERITIES
from gradscope.report.number_format import figure, folded_names
from gradscope.report.page import UNICODE

_TWICE = 1.0
"""Relative increase above which a change is written as a factor."""
_ONE = 0.005
"""Values nearer to 1 than this look equal to it in three digits."""
_MOST_DIGITS = 9


def change_text(before: float | None, after: float | None) -> str:
    """Return `+5.5 %`, `x12.3` or `equal`; empty if unknown."""
    if before is not None and before == after:
        return "equal"
    if before is None or after is None or before == 0 or not math.isfinite(before):
        return ""
    if not math.isfinite(after):
        return ""
    # The quotient of numbers of different signs is no factor.
    if before < 0 or after < 0 or 1 / (1 + _TWICE) < after / before < 1 + _TWICE:
        return percent((after - before) / abs(before))
    return f"{UNICODE.times}{figure(after / before)}"


def percent(share: float) -> str:
    """Return `+5.5 %`, `-0.0032 %`; `+0 %` of exactly nothing."""
    value = 100 * share
    # With two digits, 99.6 would become 1e+02.
    digits = f"{value:+.2g}" if abs(value) < 99.5 else f"{value:+,.0f}"
    return f"{digits} %"


def limit_text(share: float) -> str:
    """Return `10 %` of a tolerance."""
    return f"{short(100 * share)} %"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio with three digits, and with more if it is near 1: `0.9999996`."""
    if ratio == 1.0:
        return "1"
    # The negation holds for NaN, too.
    if ratio is None or not abs(ratio - 1) < _ONE:
        return figure(ratio)
    # As many decimals as it takes to reach the first digit that is not 9 or 0.
    digits = math.ceil(-math.log10(abs(ratio - 1)))
    return figure(ratio) if digits > _MOST_DIGITS else f"{ratio:.{digits}f}"


def share_text(share: float) -> str:
    """Return a relative difference: `1.9 %`, or a factor if it is above one."""
    if share >= _TWICE:
        return f"{UNICODE.times}{figure(1 + share)}"
    return f"{100 * share:.2g} %"


CURVE_NAMES = {"loss": "loss", "norm": "norm"}
_NAMES_SHOWN = 4
TITLES: dict[Change, str] = {
    "non-finite": "non-finite now",
    "lost": "lost its gradient",
    "zero": "zero now",
    "frozen": "frozen now",
    "reshaped": "another shape",
    "turned": "another direction",
    "norm": "another norm",
    "finite": "finite again",
    "gained": "has a gradient now",
    "missing": "gone",
    "new": "new",
    "within": "within",
    "rounding": "rounding",
    "shard": "different shard",
    "equal": "equal",
    "none": "no gradient",
}
"""Name of each change in a table."""

PRESENCE: tuple[Change, ...] = ("missing", "new")
"""Changes after which no gradients can be compared."""


def side_text(side: Side) -> str:
    """Return the source of a side: a run and its steps, or one step of a model."""
    report = side.report
    count = counted(len(side.parameters), "parameter")
    if side.is_run:
        run = report.training_run
        ended = "" if run is None or run.ending is None else run.ending.title
        parts = [f"run of {report.target.name}", counted(side.steps, "step"), count, ended]
    else:
        # A target that was just run has its own name, with the varied option.
        is_target = f"{side.name} ".startswith(f"{report.target.name} ")
        parts = [report.target.model if is_target else report.target.name, count]
    if report.job is not None and report.job.world_size > 1:
        parts.append(report.job.title)
    return ", ".join(word for word in parts if word)


def difference_text(difference: Difference) -> str:
    """Return `float32 → bfloat16`; of more sides than two `A 0, B 1, C 2`."""
    values = [value or "none" for value in difference.values]
    if len(values) == 2:
        return f"{values[0]} → {values[1]}"
    letters: dict[str, list[str]] = {}
    for position, value in enumerate(values):
        letters.setdefault(value, []).append(letter_of(position))
    return "; ".join(f"{', '.join(group)}: {value}" for value, group in letters.items())


def renaming_text(renaming: Renaming, side: Side) -> str:
    """Return `model.* is net.* in B (40 parameters)`."""
    count = counted(renaming.parameters, "parameter")
    if not renaming.before:
        return f"{side.letter} adds {renaming.after} to the names of {count}"
    if not renaming.after:
        return f"{side.letter} drops {renaming.before} from the names of {count}"
    return f"{renaming.before}* is {renaming.after}* in {side.letter} ({count})"


def ranks_text(comparison: Comparison) -> str:
    """Return the question that a comparison of ranks answers; empty for other comparisons."""
    if not comparison.of_ranks:
        return ""
    return (
        "ranks of one training: batches and losses differ, but gradients and weights should be "
        "equal"
    )


def compared_text(comparison: Comparison) -> str:
    """Return the steps in which sides are compared."""
    runs = sum(side.is_run for side in comparison.sides)
    if not runs:
        return ""
    if comparison.steps == 1:
        step = next(side.step for side in comparison.sides if side.is_run)
        return f"step {step:,}"
    return f"{comparison.steps:,} steps in common; norms are medians over them"


def counts_text(comparison: Comparison, position: int) -> str:
    """Return how many parameters of a side changed in which way, the worst first."""
    counts = Counter(
        pair.change for one in comparison.parameters if (pair := one.pairs[position]) is not None
    )
    words = _counted_changes(comparison)
    return ", ".join(f"{counts[change]:,} {words[change]}" for change in CHANGES if counts[change])


def _counted_changes(comparison: Comparison) -> dict[Change, str]:
    norm = limit_text(norm_limit(comparison))
    return {
        "non-finite": "no longer finite",
        "lost": "lost their gradient",
        "zero": "zero now",
        "frozen": "frozen now",
        "reshaped": "with another shape",
        "turned": f"turned (cosine below {literal(comparison.tolerance.cosine)})",
        "norm": f"outside {norm}",
        "finite": "finite again",
        "gained": "with a gradient now",
        "missing": "gone",
        "new": "new",
        "within": f"within {norm}",
        "rounding": "rounding only",
        "shard": "sharded differently on each rank",
        "equal": "identical",
        "none": "without a gradient in both",
    }


def norm_limit(comparison: Comparison) -> float:
    """Return the relative difference that norms may have."""
    return comparison.tolerance.norm_limit(of_ranks=comparison.of_ranks)


def parting_text(curve: ComparedCurve, position: int, comparison: Comparison) -> str:
    """Return where a side departs from the base, and the ends of both."""
    parting = curve.partings[position]
    if parting is None:
        return ""
    if parting.first_different is None:
        return f"equal in all {counted(parting.common, 'common step')}"
    limit = comparison.tolerance.loss if curve.kind == "loss" else norm_limit(comparison)
    parts = [
        f"differs from step {parting.first_different:,}",
        f"first by more than {limit_text(limit)} at step {parting.first_beyond:,}"
        if parting.first_beyond is not None
        else f"never by more than {limit_text(limit)}",
    ]
    return f"{', '.join(parts)}; {end_text(parting)}"


def end_text(parting: Parting) -> str:
    """Return `ends at 0.598, not 0.567 (+5.5 %)`."""
    ends = figure(parting.end), figure(parting.base_end)
    change = change_text(parting.base_end, parting.end)
    by = f" ({change})" if change else ""
    return f"ends at {ends[0]}{'' if ends[0] == ends[1] else f', not {ends[1]}'}{by}"


def by_side(told: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield letters of sides and their text; sides with the same text are joined."""
    letters: dict[str, list[str]] = {}
    for side, words in told:
        letters.setdefault(words, []).append(side)
    return ((", ".join(sides), words) for words, sides in letters.items() if words)


def spread_text(comparison: Comparison, position: int) -> str:
    """Return the median and the largest difference of a side's norms and directions."""
    pairs = [
        pair
        for one in comparison.parameters
        if (pair := one.pairs[position]) is not None and pair.change in _MEASURED
    ]
    parts = []
    shares = sorted(share_off(pair.ratio) for pair in pairs if pair.ratio is not None)
    if shares and shares[-1] > 0:
        parts.append(f"norms differ: {_median_and_most(shares)}")
    cosines = sorted(pair.cosine for pair in pairs if pair.cosine is not None)
    direction = comparison.directions[position]
    total = None if direction is None or direction.total is None else direction.total.cosine
    if cosines and direction is not None and total is not None:
        least = ratio_text(cosines[0])
        steps = f" at {steps_text(direction.steps)}" if direction.steps else ""
        parts.append(f"cosine {ratio_text(total)} over all{steps}, min {least}")
    weights = sorted(
        share_off(pair.weight_ratio) for pair in pairs if pair.weight_ratio is not None
    )
    if weights:
        apart = f"weights differ: {_median_and_most(weights)}"
        parts.append(apart if weights[-1] > 0 else "weights have equal norms")
    return "; ".join(parts)


_MEASURED: frozenset[Change] = frozenset({"turned", "norm", "within", "equal"})


def _median_and_most(shares: Sequence[float]) -> str:
    middle, most = (share_text(share) for share in (median(shares), shares[-1]))
    return f"median {middle}, max {most}"


STANDINGS: dict[Standing, str] = {
    "came": "new",
    "worse": "worse",
    "went": "gone",
    "milder": "milder",
    "stayed": "still there",
}


def standing_text(finding: ComparedFinding) -> str:
    """Return `new in B`, `gone in B and C, still there in D`."""
    letters: dict[Standing, list[str]] = {}
    for position in range(1, len(finding.findings)):
        standing = finding.standing(position)
        if standing is not None:
            letters.setdefault(standing, []).append(letter_of(position))
    return ", ".join(
        f"{STANDINGS[standing]} in {' and '.join(sides)}" for standing, sides in letters.items()
    )


def is_news(finding: ComparedFinding) -> bool:
    """Return whether a finding is new, or worse, in at least one side."""
    standings = {finding.standing(position) for position in range(1, len(finding.findings))}
    return bool(standings & {"came", "worse"})


def findings_text(findings: Sequence[ComparedFinding]) -> str:
    """Return `2 errors, 1 note`."""
    counts = Counter(one.first[1].severity for one in findings)
    return ", ".join(counted(counts[level], level) for level in SEVERITIES if counts[level])


def names_text(names: Sequence[str], comparison: Comparison) -> str:
    """Return names of parameters, folded, and the first of many alone."""
    patterns = folded_names(names, tuple(one.name for one in comparison.parameters))
    text = ", ".join(patterns[:_NAMES_SHOWN])
    more = len(patterns) - _NAMES_SHOWN
    return f"{text} and {more:,} more" if more > 0 else text


def presence_texts(comparison: Comparison) -> Iterator[str]:
    """Yield `gone in B: old.* (4 parameters)` for what only some sides have."""
    for change in PRESENCE:
        for position, side in enumerate(comparison.sides):
            names = [
                one.name
                for one in comparison.parameters
                if (pair := one.pairs[position]) and pair.change == change
            ]
            if names:
                count = counted(len(names), "parameter")
                folded = names_text(names, comparison)
                yield f"{TITLES[change]} in {side.letter}: {folded} ({count})"


def regression_text(regression: Regression, comparison: Comparison) -> str:
    """Return the regression, its size, and the limit that would have passed."""
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
                f"{counted(count, 'gradient')} turned: cosine below {literal(regression.limit)}, "
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
    """Return the last line: the result of a check, or the difference of the sides."""
    verdict = comparison.verdict
    if verdict.skip_reasons:
        return f"Could not compare: {'; '.join(verdict.skip_reasons)}."
    failed = len(verdict.regressions)
    if comparison.is_check:
        return f"Failed: {counted(failed, 'regression')}." if failed else "Passed: no regression."
    if failed:
        verb = "exceeds" if failed == 1 else "exceed"
        return f"{counted(failed, 'difference')} {verb} the tolerance."
    if all(pair.change in ("equal", "none") for pair in _pairs(comparison)):
        return "Identical."
    return "All differences are within the tolerance."


def _pairs(comparison: Comparison) -> Iterator[ParameterPair]:
    return (pair for one in comparison.parameters for pair in one.pairs if pair is not None)


def loss_notes(comparison: Comparison) -> Iterator[str]:
    """Yield how the losses of steps are made of those of their backward passes."""
    runs = [(side.letter, side.report.training_run) for side in comparison.sides]
    texts = {letter: "" if run is None else run.loss_text for letter, run in runs}
    if len({*texts.values()}) == 1:
        yield from (f"loss: {text}" for text in {*texts.values()} if text)
    else:
        told = (f"{letter} {text or 'of one backward'}" for letter, text in texts.items())
        yield f"loss: {', '.join(told)}"
