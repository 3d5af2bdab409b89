"""The file of a baseline: JSON, one entry per known finding, made to be committed and merged."""

import json
import math
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

from gradscope.check.results import CheckedFinding, TargetResult
from gradscope.errors import GradscopeError
from gradscope.files import written_whole
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.encoding import spell
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.origin import TargetRecord
from gradscope.rules.fingerprint import portable_path, pure_path, subjects_of
from gradscope.rules.measurement import Measure

LEVELS: tuple[Severity, ...] = get_args(Severity)
"""The worst first."""


# A drive on Windows has a colon as well: EXPR begins behind the ending of the file.
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
    """Subjects of the finding, which distinguish findings with the same fingerprint."""
    level: Severity
    count: int
    """Number of affected items."""
    measure: tuple[str, float] | None = None
    """Measured severity of the finding; None if the rule measures none."""
    seeds: tuple[int, ...] = ()
    """Seeds that showed the finding; empty if all runs did."""
    file: str = ""
    """Path that is equal on every machine; empty without a known line, as are the next two."""
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
    from gradscope.rules.catalogue import RULES  # imports every rule

    rule = next((one for one in RULES if one.code == finding.rule), None)
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
            reasons.append(f"{name} {short(value)} instead of {short(known.measure[1])}")
    if finding.count > known.count * tolerance:
        reasons.append(f"count {finding.count:,} instead of {known.count:,}")
    return ", ".join(reasons) or None


SCHEMA_VERSION = 1
"""Version of the file format. It is incremented when an older gradscope cannot read the file."""

_APPLICATION = "gradscope baseline"

_CONFLICT = re.compile(r"^(?:<{7}|\|{7}|>{7})(?: |$)", re.MULTILINE)

Json = str | float | bool | None | list["Json"] | dict[str, "Json"]


def read_entries(path: Path) -> tuple[Entry, ...]:
    """Return what a baseline's file holds.

    Raises:
        GradscopeError: There is no such file, or it is damaged, another program's, a newer
            gradscope's, or holds a merge that was not resolved.
    """
    try:
        # Editors on Windows may write a byte order mark, which JSON does not allow.
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise GradscopeError(
            f"there is no baseline `{path}`",
            help="create one with gradscope check --write-baseline",
        ) from None
    except OSError as error:
        raise GradscopeError(f"cannot read `{path}`", cause=error.strerror) from error
    except UnicodeDecodeError:
        raise _damaged(path, "it is not UTF-8 text") from None
    if (mark := _CONFLICT.search(text)) is not None:
        line = text.count("\n", 0, mark.start()) + 1
        raise GradscopeError(
            f"`{path}` has an unresolved merge conflict in line {line}",
            help="keep the lines of both sides, then sort them with --write-baseline",
        )
    return _entries(path, _parsed(path, text))


def _parsed(path: Path, text: str) -> Json:
    try:
        parsed: Json = json.loads(text)
    except json.JSONDecodeError as error:
        raise _damaged(path, f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "it is not valid JSON") from None
    return parsed


def _entries(path: Path, document: Json) -> tuple[Entry, ...]:
    if not isinstance(document, dict) or document.get("application") != _APPLICATION:
        raise GradscopeError(
            f"`{path}` is not a gradscope baseline", help="name another file, or remove it"
        )
    version = document.get("schema_version")
    # `true` is an `int` in Python, here and below.
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(path, "`schema_version` is not a known version")
    if version > SCHEMA_VERSION:
        raise GradscopeError(
            f"`{path}` was written by a newer gradscope", help="install that version or a newer one"
        )
    findings = document.get("findings")
    if not isinstance(findings, list):
        raise _damaged(path, "`findings` is not a list")
    found = []
    for number, item in enumerate(findings, 1):
        try:
            found.append(_entry(item))
        except ValueError as error:
            raise _damaged(path, f"finding {number}: {error}") from None
    return tuple(found)


def _damaged(path: Path, cause: str) -> GradscopeError:
    return GradscopeError(
        f"the baseline `{path}` is damaged",
        cause=cause,
        help="restore it from version control, or remove it and use --write-baseline",
    )


def _entry(item: Json) -> Entry:
    if not isinstance(item, dict):
        raise ValueError("it is not an object")
    return Entry(
        target=_text(item, "target"),
        rule=_text(item, "rule"),
        name=_text(item, "name"),
        fingerprint=_text(item, "fingerprint"),
        subjects=_texts(item, "subjects"),
        level=_level(item),
        count=_whole(item.get("count"), "count"),
        measure=_measure(item.get("measure")),
        seeds=tuple(_whole(seed, "seeds") for seed in _list(item, "seeds")),
        file=_text(item, "file", ""),
        function=_text(item, "function", ""),
        code=_text(item, "code", ""),
    )


def _text(item: Mapping[str, Json], key: str, default: str | None = None) -> str:
    value = item.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"`{key}` is missing" if value is None else f"`{key}` is not a string")
    return value


def _list(item: Mapping[str, Json], key: str) -> list[Json]:
    value = item.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"`{key}` is not a list")
    return value


def _texts(item: Mapping[str, Json], key: str) -> tuple[str, ...]:
    values = _list(item, key)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"`{key}` holds more than strings")
    return tuple(map(str, values))


def _level(item: Mapping[str, Json]) -> Severity:
    level = next((known for known in LEVELS if known == item.get("level")), None)
    if level is None:
        raise ValueError("`level` is not one of " + ", ".join(LEVELS))
    return level


def _whole(value: Json, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"`{key}` is not a whole number")
    return value


def _measure(value: Json) -> tuple[str, float] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("`measure` is not one number with its name")
    ((name, number),) = value.items()
    # JSON has no NaN and no infinity: they are strings.
    if isinstance(number, bool) or not isinstance(number, int | float | str):
        raise ValueError(f"`{name}` is not a number")
    try:
        return name, float(number)
    except (ValueError, OverflowError):
        raise ValueError(f"`{name}` is not a number") from None


def write_entries(path: Path, entries: Iterable[Entry]) -> None:
    """Write a baseline's file, the same bytes for the same entries in any order.

    A file that was there stays whole until it is replaced.

    Raises:
        GradscopeError: It cannot be written.
    """
    try:
        with written_whole(path) as file:
            # Line feeds on Windows too: otherwise each commit from another system changes every
            # line.
            file.write_text(baseline_text(entries), encoding="utf-8", newline="\n")
    except OSError as error:
        raise GradscopeError(f"cannot write `{path}`", cause=error.strerror) from error


def baseline_text(entries: Iterable[Entry]) -> str:
    """Return the file's text; sorted entries keep merge conflicts rare."""
    lines = sorted((one.target, one.file, one.rule, _line(one)) for one in entries)
    # A line for each entry keeps merges of branches free of conflicts within one.
    findings = ",\n".join(f"    {line}" for *_, line in lines)
    body = f"[\n{findings}\n  ]" if findings else "[]"
    return (
        f'{{\n  "application": "{_APPLICATION}",\n  "findings": {body},\n'
        f'  "schema_version": {SCHEMA_VERSION}\n}}\n'
    )


def _line(entry: Entry) -> str:
    """Return an entry as a JSON object without empty fields."""
    measure = None if entry.measure is None else {entry.measure[0]: spell(entry.measure[1])}
    values: dict[str, object] = {
        "target": entry.target,
        "rule": entry.rule,
        "name": entry.name,
        "fingerprint": entry.fingerprint,
        "subjects": entry.subjects or None,
        "level": entry.level,
        "count": entry.count,
        "measure": measure,
        "seeds": entry.seeds or None,
        "file": entry.file or None,
        "function": entry.function or None,
        "code": entry.code or None,
    }
    known = {key: value for key, value in values.items() if value is not None}
    text = json.dumps(known, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if any(0xD800 <= ord(sign) < 0xE000 for sign in text):  # of odd paths; UTF-8 cannot hold it
        return json.dumps(known, sort_keys=True, allow_nan=False)
    return text
