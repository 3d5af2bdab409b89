"""Recognizes findings with the same cause, from recording to recording, and merges them."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath, PurePosixPath, PureWindowsPath

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.recording.evidence.training import StatementRecord
from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.rules.helpers.source_text import plain_source

_ONE_LINE = 120
"""A statement of up to this many characters is identified as a whole, however many lines it has. In
a longer one, such as a list of layers, the line is used.
"""

_MOST_SUBJECTS = 8

# Debian's own packages are in `dist-packages`.
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")

# `lib64` is that of Fedora, and a `t` marks a build of Python without the GIL.
_STANDARD_LIBRARY = re.compile(r".*[/\\]lib(?:64)?[/\\]python3(?:\.\d+)?t?[/\\]")

# Jupyter, IPython, marimo, Databricks and others name a cell by a number or a digest that changes
# with each run.
_NOTEBOOK = re.compile(
    r"ipykernel_\d+[/\\]|[/\\<]ipython-input-|[/\\]marimo_\d+[/\\]|^<command-|^Cell \["
)

# Names such as `<string>` and `<frozen importlib>` stay the same. Where there is a digit, it is a
# counter, so the name ends before it.
_SYNTHETIC = re.compile(r"<[^\d\W]+(?:[ -][^\d\W]+)*")

# `tempfile` makes names of `tmp` and eight random characters.
_TEMPORARY = re.compile(r"tmp[\w-]{6,}")

# Generated code is often named by a counter, a process or a digest.
_LETTERLESS = re.compile(r"\d{4,}|[0-9a-f]{8,}")

_COMPREHENSION = re.compile(r"\.<locals>\.<(?:list|dict|set)comp>")

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")


def fingerprint_of(
    code: str, context: RecordingIndex, location: Site | None, cause: str | None
) -> str:
    """Return what stays the same while lines move, numbers change and files are laid out anew.

    It holds none of the parameters: which of them a cause reaches is another matter in every run.

    Args:
        code: The rule's.
        context: What was judged.
        location: The line of the finding.
        cause: What takes the place of the line; None where the line is the cause.
    """
    target = context.recording.target
    if cause is not None or location is None:
        position = [target.model, cause or ""]
    else:
        file = portable_path(location.file, target.repository)
        position = [file, _function(location.function), _code(context, location)]
    return _digest([code, *position])


def unique_fingerprints(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return a distinct fingerprint for each finding, in their order.

    The first of those that share one keeps it: first in the file, and by what they concern. How bad
    they are does not count, which may be another in the next run.
    """
    groups: dict[str, list[int]] = {}
    for position, finding in enumerate(findings):
        groups.setdefault(finding.fingerprint, []).append(position)
    found = [finding.fingerprint for finding in findings]
    for group in groups.values():
        known: dict[tuple[str, ...], int] = {}
        # The order of findings is that of how bad they are, which may change from run to run. That
        # of their lines stays.
        for position in sorted(group, key=lambda position: _order(findings[position])):
            concerned = subjects_of(findings[position])
            known[concerned] = known.get(concerned, 0) + 1
            if len(known) > 1 or known[concerned] > 1:
                parts = [found[position], *concerned, str(known[concerned])]
                found[position] = _digest(parts)
    return tuple(found)


def _order(finding: Finding) -> tuple[int, tuple[str, ...]]:
    return 0 if finding.location is None else finding.location.line, subjects_of(finding)


def subjects_of(finding: Finding) -> tuple[str, ...]:
    """Return the subjects of a finding; see `subjects`."""
    return subjects(finding.parameters or finding.modules)


def subjects(names: Iterable[str]) -> tuple[str, ...]:
    """Return parameters or modules as a few sorted patterns: `layers.*.weight`.

    Numbers count for nothing, so that another layer of a kind is the same. Where the patterns are
    many, the modules around them stand for them. The model itself is nothing in particular.
    """
    patterns = {".".join(map(_without_number, name.split("."))) for name in names if name}
    while len(patterns) > _MOST_SUBJECTS and any("." in pattern for pattern in patterns):
        patterns = {pattern.rpartition(".")[0] or pattern for pattern in patterns}
    return tuple(sorted(patterns)[:_MOST_SUBJECTS])


def portable_path(file: str, repository: str) -> str:
    """Return a path that is the same on every machine and in every checkout, with forward slashes.

    That is the path inside of the repository, of an installed package or of the standard library;
    else the file's name alone, and a word for code that stands in no file of its own.
    """
    if _NOTEBOOK.search(file):
        return "<notebook>"
    if (synthetic := _SYNTHETIC.match(file)) is not None:
        return f"{synthetic[0]}>"
    for folder in (_INSTALLED, _STANDARD_LIBRARY):
        if folder.match(file):
            return folder.sub("", file).replace("\\", "/")
    path, root = pure_path(file), pure_path(repository)
    if repository and path.is_relative_to(root):
        parts = path.relative_to(root).parts
        return "/".join(part for part in parts if not _TEMPORARY.fullmatch(part))
    is_made_up = _TEMPORARY.match(path.stem) or _LETTERLESS.search(path.stem)
    return "<generated>" if is_made_up else path.name


def pure_path(text: str) -> PurePath:
    """Return a path that a recording holds, which may be of another system."""
    # The recording may come from another machine, so the system that reads it says nothing on its
    # paths.
    is_windows = re.match(r"[A-Za-z]:[\\/]|\\\\", text)
    return PureWindowsPath(text) if is_windows else PurePosixPath(text)


def _function(name: str) -> str:
    """Return a function's qualified name, equal for all versions of Python, compiled or not."""
    outermost = _COMPREHENSION.sub("", name)  # has no frame of its own from Python 3.12 on
    return _RESUMED.sub(r"\1", outermost)


def _code(context: RecordingIndex, location: Site) -> str:
    """Return the statement that a line is in, else the line, as every layout of it reads."""
    records = context.shared(_statements).get(location.file, ())
    around = [record for record in records if record.first <= location.line <= record.last]
    if around:
        # A compound statement contains others; the shortest one around the line is its own.
        whole = plain_source(min(around, key=lambda record: record.last - record.first).text)
        if len(whole) <= _ONE_LINE:
            return whole
    return plain_source(location.source)


def _statements(context: RecordingIndex) -> dict[str, list[StatementRecord]]:
    """Return the statements of several lines, by file."""
    found: dict[str, list[StatementRecord]] = {}
    for record in context.recording.evidence_of(StatementRecord):
        found.setdefault(record.file, []).append(record)
    return found


def _without_number(part: str) -> str:
    """Return a part of a name, without a number that may distinguish layers, as in `fc1`."""
    return "*" if part.isdecimal() or re.search(r"\d{6,}|0x[0-9a-f]{6,}", part) else part


def _digest(parts: Iterable[str]) -> str:
    # Sixteen hexadecimal digits keep 64 bits: enough for the findings of a project, and short in
    # reports.
    return hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()[:16]


def by_cause(recordings: Sequence[Sequence[Finding]]) -> list[list[tuple[int, Finding]]]:
    """Return the findings of several recordings, grouped by their causes.

    Args:
        recordings: The findings of each.

    Returns:
        Of each cause the findings, with the positions of their recordings, in ascending order.
    """
    shown: dict[str, list[tuple[int, Finding]]] = {}
    for position, findings in enumerate(recordings):
        for fingerprint, finding in zip(unique_fingerprints(findings), findings, strict=True):
            shown.setdefault(fingerprint, []).append((position, finding))
    return list(shown.values())
