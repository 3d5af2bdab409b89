"""What every format says of findings, of a report as a whole, and of the next command."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from gradscope.analysis.report import Report
from gradscope.analysis.rows import OtherStep
from gradscope.check.results import CheckResult
from gradscope.comparison.comparison import Comparison
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import SEVERITIES, Finding, Fix, SkippedRule
from gradscope.recording.origin import TargetRecord
from gradscope.report.number_format import figure, folded_names, operation_text
from gradscope.report.page import UNICODE

_EVIDENCE_SHOWN = 4

_TOLD_ELSEWHERE = frozenset({"batch", "batch_numbers", "line_is", "operation_is"})
"""Measurements for programs: the message or a line of their own tells readers of them."""

_NUMBER = re.compile(
    r"(?P<digits>-?\d[\d,]*(?:\.(?P<decimals>\d+))?)"
    r"(?:e(?P<power>[+-]?\d+))?(?P<percent> ?%)?"
)

_FARTHEST = 0.06
"""Relative difference above which a number is not a rounded form of another: 2 is not 1.5."""

_KEEPS_FILES = ("-o", "--output-file", "--save", "--open")
"""Options under which the same command would write a file again."""

_ENDS_OTHERWISE = ("--overfit", "--steps", "--micro-batches", "--")


def fix_text(fix: Fix) -> str:
    """Return whether a fix is verified, and what the edited program showed."""
    safety = "unsafe, " if fix.safety == "unsafe" else ""
    mark = "verified" if fix.verified else "not verified"
    return f"{safety}{mark}: {fix.verdict or 'the edited program was not run'}"


def fix_lines(fix: Fix | None) -> Iterator[str]:
    """Yield the result of a fix, and the lines that it changes."""
    if fix is None:
        return
    yield f"fix, {fix_text(fix)}"
    for line in fix.diff.split("\n"):
        if line.startswith(("+", "-")) and not line.startswith(("+++", "---")):
            yield line


def found_text(report: Report) -> str:
    """Return `2 errors, 1 warning`; empty without findings."""
    return ", ".join(level_counts(report.findings))


def level_counts(findings: Iterable[Finding]) -> list[str]:
    """Return `2 errors` and `1 warning` of findings, the worst level first."""
    counts = Counter(finding.severity for finding in findings)
    return [counted(counts[level], level) for level in SEVERITIES if counts[level]]


def verdict_text(report: Report) -> str:
    """Return how many findings there are and how many rules judged; empty if none was requested."""
    rules = report.rules
    left_out = sum(item.is_left_out for item in rules.skipped)
    obstructed = len(rules.skipped) - left_out
    if not (rules.ran or rules.skipped or report.findings):
        return ""
    found = found_text(report)
    words = [f"{counted(len(rules.ran), 'rule')} ran"] if rules.ran else []
    words += [f"{obstructed:,} not applicable"] if obstructed else []
    words += [f"{left_out:,} skipped"] if left_out else []
    head = f"Found {found}" if found else "No findings" if rules.ran else "No rule ran"
    return f"{': '.join(filter(None, [head, ', '.join(words)]))}."


def unjudged(skipped: Iterable[SkippedRule]) -> list[tuple[str, str]]:
    """Return the codes of the rules that could not run, `GS105, GS201-GS204`, and the reason."""
    by_reason: dict[str, list[str]] = {}
    for item in skipped:
        if not item.is_left_out:
            by_reason.setdefault(item.reason, []).append(item.rule)
    return [(code_ranges(codes), reason) for reason, codes in by_reason.items()]


def code_ranges(codes: Iterable[str]) -> str:
    """Return codes separated by commas; three or more consecutive ones as a range."""
    runs: list[list[int]] = []
    for number in sorted(int(code.removeprefix("GS")) for code in codes):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"GS{run[0]}-GS{run[-1]}" if len(run) > 2 else ", ".join(f"GS{number}" for number in run)
        for run in runs
    )


def parameter_text(finding: Finding, report: Report, shown: int = 4) -> str:
    """Return the parameters of a finding of a report; see `concerned_text`."""
    return concerned_text(finding, tuple(row.name for row in report.parameters), shown)


def concerned_text(finding: Finding, every: Sequence[str], shown: int = 4) -> str:
    """Return the parameters, folded; empty if the message names them or their modules.

    Args:
        finding: What was found.
        every: The names of all parameters of the model.
        shown: How many patterns at most.
    """
    names, message = finding.parameters, finding.message
    patterns = folded_names(names, every)
    if all(is_named(name, message) for name in names) or all(
        is_named(pattern.removesuffix(".*"), message) for pattern in patterns
    ):
        return ""
    if len(names) == len(every) > 1:
        return f"all {len(names):,}"
    text = ", ".join(patterns[:shown])
    if (more := len(patterns) - shown) > 0:
        text += f" and {more:,} more"
    return text if len(names) == len(patterns) <= shown else f"{text} ({len(names):,})"


def is_named(name: str, message: str) -> bool:
    """Return whether a message names a parameter, and not only one whose name goes on."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w]|\.\w)", message) is not None


def evidence_text(finding: Finding) -> str:
    """Return the first of the measured numbers and limits that the message does not hold."""
    reported = [_NumberInText.of(match) for match in _NUMBER.finditer(finding.message)]
    parts = [
        f"{_measure(name)} = {_shown(value)}"
        for name, value in _readable(finding)
        if value is not None and not _has_figure(value, finding.message, reported)
    ]
    if len(parts) > _EVIDENCE_SHOWN:
        parts[_EVIDENCE_SHOWN:] = [UNICODE.ellipsis]
    return ", ".join(parts)


def batch_text(finding: Finding) -> str:
    """Return which samples the step of a finding read, and their numbers; empty if unknown."""
    told = {name: value for name, value in finding.evidence if isinstance(value, str)}
    batch, numbers = told.get("batch", ""), told.get("batch_numbers", "")
    return batch if numbers in batch else f"{batch}, {numbers}"


def _measure(name: str) -> str:
    """Return the name of a measurement as people say it: `powers of ten per layer`."""
    return name.replace("decades", "powers of ten").replace("_", " ")


def _readable(finding: Finding) -> Iterator[tuple[str, float | str | bool | None]]:
    """Yield the measurements, with operations under the names that users know."""
    for name, value in finding.evidence:
        if name in _TOLD_ELSEWHERE and isinstance(value, str):
            continue
        is_operation = name == "operation" and isinstance(value, str)
        yield name, operation_text(str(value)) if is_operation else value


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumberInText:
    """A number in a message."""

    value: float
    half_digit: float
    """Largest rounding error of the number."""

    @classmethod
    def of(cls, match: re.Match[str]) -> Self:
        unit = float(f"1e{match['power'] or 0}") / (100 if match["percent"] else 1)
        return cls(
            value=float(match["digits"].replace(",", "")) * unit,
            # A little more than half of the last digit, because floats are rounded as well.
            half_digit=0.501 * unit / 10 ** len(match["decimals"] or ""),
        )

    def is_rounded(self, exact: float) -> bool:
        near = min(self.half_digit, _FARTHEST * abs(exact))
        return abs(self.value - exact) <= near


def _has_figure(value: float | str | bool, message: str, told: list[_NumberInText]) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        # The message of an exception is shown without its class.
        return value.partition(": ")[2 if ": " in value else 0].lower() in message.lower()
    if not math.isfinite(value):
        return True  # no rule that measures NaN or infinity is silent about it
    return any(number.is_rounded(value) for number in told)


def _shown(value: float | str | bool) -> str:
    # A bool is an int in Python, and would be written as one.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return value
    text = figure(value)
    # A limit such as 0.3 has no further digits.
    is_short = "." in text and "e" not in text and float(text) == value
    return text.rstrip("0").rstrip(".") if is_short else text


def consequence_text(finding: Finding) -> str:
    """Return the rules whose findings this one explains, with their numbers; may be empty."""
    counts = Counter((item.rule, item.name) for item in finding.consequences)
    return ", ".join(
        f"{rule} {name}{f' ({count:,})' if count > 1 else ''}"
        for (rule, name), count in sorted(counts.items())
    )


def guess_warning(target: TargetRecord) -> str | None:
    """Return the warning that gradscope guessed a part of the target; None if it did not."""
    if not target.guesses:
        return None
    *others, last = target.guesses
    names = f"{', '.join(others)} and {last}" if others else last
    verb = "is" if not others and last != "arguments" else "are"
    return f"the {names} {verb} guessed. These are not the gradients of your training"


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

    A norm on the way that is above those at both ends is reported too.

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
    """Return the step with the largest norm, None if that is the first or the judged one."""
    norms = [-1.0 if step.grad_norm is None else step.grad_norm for step in report.training]
    largest = max(norms)
    last = report.summary.grad_norm
    is_inside = largest > norms[0] and (last is None or largest > last or not math.isfinite(last))
    return report.training[norms.index(largest)] if is_inside else None


def _in_brackets(troubles: tuple[tuple[int, str], ...]) -> str:
    parts = [f"{count:,} {what}" for count, what in troubles if count]
    return f" ({', '.join(parts)})" if parts else ""


def next_of_report(report: Report) -> str:
    """Return what explains the worst finding; without any, what shows that the model learns."""
    return _of_findings(report.findings) or _overfitting(report)


def next_of_check(result: CheckResult) -> str:
    """Return what explains the worst finding that counts, or guesses what is missing.

    It is empty without either.
    """
    counted = (item.finding for target in result.targets for item in target.counted())
    return _of_findings(counted) or guessing(result)


def guessing(result: CheckResult) -> str:
    """Return the same check with guesses for what a target does not have; empty if nothing is."""
    needs_guess = any(one.needs_guess for target in result.targets for one in target.failures)
    try:
        words = shlex.split(result.command)
    except ValueError:  # the command of a damaged recording
        return ""
    if not needs_guess or words[:2] != ["gradscope", "check"]:
        return ""
    return shlex.join([*words[:2], "--allow-guesses", *words[2:]])


def next_of_comparison(comparison: Comparison) -> str:
    """Return what explains the worst finding that only a later side has, else that any has."""
    others = range(1, len(comparison.sides))
    news = [
        one.first[1]
        for one in comparison.findings
        if any(one.standing(position) in ("came", "worse") for position in others)
    ]
    return _of_findings(news) or _of_findings(one.first[1] for one in comparison.findings)


def _of_findings(findings: Iterable[Finding]) -> str:
    worst = min(findings, key=lambda one: SEVERITIES.index(one.severity), default=None)
    return "" if worst is None else f"gradscope rule {worst.rule}"


def _overfitting(report: Report) -> str:
    """Return the command that trains an inspected model on its batch; empty where it says no more.

    It is empty where the command cannot simply be repeated, too.
    """
    try:
        words = shlex.split(report.command)
    except ValueError:  # the command of a damaged recording
        return ""
    is_inspection = words[:2] == ["gradscope", "inspect"] and report.rules.ran
    return shlex.join([*words, "--overfit"]) if is_inspection and _is_repeatable(words) else ""


def _is_repeatable(words: Sequence[str]) -> bool:
    options = {word.partition("=")[0] for word in words}
    return options.isdisjoint({*_KEEPS_FILES, *_ENDS_OTHERWISE})
