"""Shapes of what several kinds of report hold: lines of code, target, summary, rules, findings."""

from typing import Annotated, Literal

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path
from gradscope.recording.finding import Edit, RelatedLocation, Safety, Severity
from gradscope.recording.finding import Finding as FindingRecord
from gradscope.recording.records import Site
from gradscope.report.json.shape import (
    INLINE,
    SCHEMA_VERSION,
    Count,
    Of,
    Pattern,
    Positive,
    Shape,
)


def _file(where: Site | RelatedLocation, report: Report) -> str:
    return shown_path(where.file, report.target.root)


class Location(Shape):
    """A line of code."""

    file: Annotated[str, Of(_file), "Relative to the working directory where it lies under it."]
    line: Count
    function: str
    source: str


Where = Annotated[Location | None, Of("site")]


class Tool(Shape):
    """The program that made the report."""

    name: Annotated[Literal["gradscope"], Of(lambda *_: "gradscope")]
    version: str


class Meta(Shape):
    """The version of the format and of the program, and the command."""

    schema_version: Annotated[str, Pattern(r"^1\.[0-9]+$"), Of(lambda *_: SCHEMA_VERSION)]
    tool: Annotated[Tool, Of()]
    command: str


class Environment(Shape, grows=True):
    """Where the recording was made."""

    python: str
    torch: str
    platform: str
    device: str
    threads: Count


class Subject(Shape, grows=True):
    """What was inspected."""

    name: str
    model: str
    batch: str
    loss: str
    optimizer: str | None
    mode: str
    seed: int | None
    synthetic_loss: bool
    guessed: Annotated[tuple[str, ...], Of("guesses")]


class SummaryParameters(Shape):
    """Numbers of parameters."""

    total: Annotated[Count, Of("parameters")]
    requires_grad: Count
    gradient: Annotated[Count, Of("reached")]
    zero: Count
    none: Count
    frozen: Count
    unknown: Count
    nonfinite: Annotated[Count, Of("nonfinite_parameters")]
    numel: Count
    trainable_numel: Count


class SummaryTensors(Shape):
    """Numbers of tensors."""

    measured: Annotated[Count, Of("tensors")]
    unmeasured: Annotated[Count, Of("unmeasured_tensors")]
    views: Count
    nonfinite: Annotated[Count, Of("nonfinite_tensors")]


class Summary(Shape, grows=True):
    """The report in numbers."""

    step: Annotated[Count | None, "The judged step: how many optimizer steps were made before it."]
    loss: float | None
    grad_norm: Annotated[float | None, "Global norm over all parameters, each once."]
    parameters: Annotated[SummaryParameters, Of()]
    tensors: Annotated[SummaryTensors, Of()]
    skipped: Count
    findings: Annotated[Count, Of(lambda _, report: len(report.findings))]


class SkippedRule(Shape):
    """A rule that could not judge."""

    rule: str
    reason: str


class Rules(Shape):
    """Which rules ran, and which could not."""

    ran: tuple[str, ...]
    skipped: tuple[SkippedRule, ...]


class Related(Shape):
    """Another line that contributes to the cause of a finding."""

    file: Annotated[str, Of(_file)]
    line: Count
    message: str
    source: Annotated[str, "Without indentation; empty where it is not known."]


class Consequence(Shape):
    """A finding of another rule that a finding explains."""

    rule: str
    name: str
    message: str


class FindingRanks(Shape):
    """The ranks of a finding in a distributed job."""

    ranks: Annotated[
        tuple[Count, ...],
        "Ranks of a distributed job that show it; missing for a single process.",
    ]


def _ranks(finding: FindingRecord, _: Report) -> FindingRecord | None:
    return finding if finding.ranks else None


class FixPosition(Shape):
    """A position in a file."""

    line: Positive
    column: Positive


def _edited_file(edit: Edit, report: Report) -> str:
    return shown_path(edit.file, report.target.root)


class FixEdit(Shape):
    """The replacement of a range of a file."""

    file: Annotated[str, Of(_edited_file)]
    start: FixPosition
    end: Annotated[FixPosition, "First position behind the range."]
    replacement: str


class FixNumbers(Shape):
    """The judged step of a program."""

    loss: float | None
    grad_norm: float | None


class Fix(Shape):
    """Edits that fix a finding, and the result of running the edited program."""

    safety: Annotated[Safety, "Whether they change what the program is meant to compute."]
    edits: tuple[FixEdit, ...]
    diff: Annotated[str, "The edits as a unified diff."]
    verified: Annotated[bool | None, "Null if the edited program was not run."]
    verdict: str
    before: FixNumbers | None
    after: FixNumbers | None


class FindingFix(Shape):
    """The fix of a finding."""

    fix: Annotated[Fix, "Missing without --diff or --fix, and if there is no fix."]


def _with_fix(finding: FindingRecord, _: Report) -> FindingRecord | None:
    return finding if finding.fix is not None else None


class Finding(Shape):
    """One cause, with its line, its numbers and its remedy."""

    rule: Annotated[str, Pattern("^GS[0-9]{3}$")]
    name: str
    severity: Severity
    message: str
    location: Location | None
    related: tuple[Related, ...]
    parameters: tuple[str, ...]
    modules: tuple[str, ...]
    step: Count | None
    count: Count
    evidence: dict[str, float | str | bool | None]
    remedy: str
    consequences: tuple[Consequence, ...]
    of_ranks: Annotated[FindingRanks | None, INLINE, Of(_ranks)]
    fingerprint: str
    of_fix: Annotated[FindingFix | None, INLINE, Of(_with_fix)]
