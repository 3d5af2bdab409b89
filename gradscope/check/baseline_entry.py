"""A known finding, as a baseline stores it."""

import math
import posixpath
import re
from dataclasses import dataclass
from typing import get_args

from gradscope.check.results import CheckedFinding, TargetResult
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import TargetRecord
from gradscope.rules.catalogue import RULES
from gradscope.rules.fingerprint import portable_path, pure_path, subjects_of
from gradscope.rules.measure import Measure

LEVELS: tuple[Severity, ...] = get_args(Severity)
"""The worst first."""


_RULES = {rule.code: rule for rule in RULES}


_PYTHON_FILE = re.compile(r"(?P<file>.+?\.pyw?)(?P<rest>:.*)?", re.DOTALL)


_RECORDING = ".gradscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A known finding: what identifies it, how bad it was, and its text."""

    target: str
    """Target as `target_key` returns it."""
    rule: str
    name: str
    """Name of the rule."""
    fingerprint: str
    subjects: tuple[str, ...] = ()
    """Subjects of the finding, which tell findings with the same fingerprint apart."""
    level: Severity
    count: int
    """Number of affected items."""
    measure: tuple[str, float] | None = None
    """Measured severity of the finding; None if the rule measures none."""
    seeds: tuple[int, ...] = ()
    """Seeds that showed the finding; empty if all runs did."""
    file: str = ""
    """Path that is equal on every machine; empty, as are the next two, without a known line."""
    function: str = ""
    code: str = ""


def entry_of(item: CheckedFinding, target: TargetResult) -> Entry:
    """Return the entry of a finding."""
    finding, record = item.finding, target.runs[item.run].recording.target
    position, measured = finding.location, measure_of(finding)
    in_all = len(item.seeds) >= len(target.runs)
    return Entry(
        target=target_key(target),
        rule=finding.rule,
        name=finding.name,
        fingerprint=finding.fingerprint,
        subjects=subjects_of(finding),
        level=finding.severity,
        count=finding.count,
        measure=None if measured is None else (measured[0].number, rounded(measured[1])),
        seeds=() if in_all else tuple(sorted({s for s in item.seeds if s is not None})),
        file="" if position is None else portable_path(position.file, record.repository),
        function="" if position is None else position.function,
        code="" if position is None else position.source,
    )


def target_key(target: TargetResult) -> str:
    """Return the name of a target from its repository's folder, equal in every folder.

    A path is taken from the repository's folder, and a recording is one of the target in it; names
    of the configuration and of modules stay as they are.
    """
    if not target.runs:
        return target.name
    record = target.runs[0].recording.target
    name = record.name if target.name.endswith(_RECORDING) else target.name
    match = _PYTHON_FILE.fullmatch(name)
    if match is None:
        return name
    return _within_repository(match["file"], record) + (match["rest"] or "")


def _within_repository(file: str, record: TargetRecord) -> str:
    """Return a file's path from the repository's folder; unchanged outside of one."""
    root, repository = pure_path(record.root), pure_path(record.repository)
    absolute = posixpath.normpath((root / file).as_posix())
    relative = posixpath.relpath(absolute, repository.as_posix())
    return pure_path(file).as_posix() if relative.startswith("..") else relative


def measure_of(finding: Finding) -> tuple[Measure, float] | None:
    """Return the number that measures how bad a finding is, with its name; None without one."""
    rule = _RULES.get(finding.rule)
    evidence = dict(finding.evidence)
    for measure in () if rule is None else rule.measures:
        value = evidence.get(measure.number)
        if isinstance(value, int | float) and (measure.limit is None or measure.limit in evidence):
            return measure, float(value)
    return None


def rounded(value: float) -> float:
    """Return a number to four digits; further ones differ between machines."""
    return float(f"{value:.4g}") if math.isfinite(value) else value


def worsening(finding: Finding, known: Entry, tolerance: float) -> str | None:
    """Return how a finding is worse than a baseline allows; None if it is not.

    Args:
        finding: The finding.
        known: Entry of the finding in the baseline.
        tolerance: Factor by which its measure may be worse, and its count larger.
    """
    reasons = []
    if LEVELS.index(finding.severity) < LEVELS.index(known.level):
        reasons.append(f"{finding.severity} instead of {known.level}")
    measured = measure_of(finding)
    if (
        measured is not None
        and known.measure is not None
        and measured[0].number == known.measure[0]
    ):
        measure, value = measured
        if measure.is_worse(rounded(value), known.measure[1], tolerance):
            name = measure.number.replace("_", " ")
            reasons.append(f"{name} {value:.3g} instead of {known.measure[1]:.3g}")
    if finding.count > known.count * tolerance:
        reasons.append(f"count {finding.count:,} instead of {known.count:,}")
    return ", ".join(reasons) or None
