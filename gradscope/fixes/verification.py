"""Judges a fix by the repaired program: the finding is gone, and nothing else became worse."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from gradscope.analysis.recording_index import ended_by
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path, shown_site
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.batches import LossTermRecord
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.finding import Edit, Finding, Numbers
from gradscope.recording.records import Site
from gradscope.rules.catalogue import RULES
from gradscope.source_edits.text_edits import line_before

_MOST_CHANGE = 100.0
"""Factor by which the loss of the repaired program may be larger. Chosen: another reduction or
normalisation stays within it, a diverging loss does not."""
_NOTING = frozenset(rule.code for rule in RULES if rule.level == "note")
"""Codes of rules whose findings are notes. Whether they can judge often follows from the losses,
which every fix changes."""
_COPY = re.compile(r"#\d+")
_LINE = re.compile(r"\bline (\d+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the repaired program showed."""

    is_verified: bool
    text: str
    """The result in words, as `GS702 gone, gradient norm 0.331 -> 0.118, no new finding`."""


def numbers_of(report: Report) -> Numbers:
    """Return the loss and the gradient norm of the judged step."""
    return Numbers(loss=report.summary.loss, grad_norm=report.summary.grad_norm)


def result_of(finding: Finding, before: Report, after: Report, edits: Sequence[Edit]) -> Result:
    """Return whether a fix holds.

    Args:
        finding: The finding that the edits are for, of the report before.
        before: The program as it is.
        after: The repaired program, run in the same way.
        edits: What was changed.
    """
    comparison = _Comparison(finding, before, after, edits)
    objection = next(comparison.objections(), None)
    if objection is not None:
        return Result(is_verified=False, text=objection)
    return Result(is_verified=True, text=", ".join(comparison.gains()))


class _Comparison:
    """The program before and after a fix."""

    def __init__(
        self, finding: Finding, before: Report, after: Report, edits: Sequence[Edit]
    ) -> None:
        self._finding, self._before, self._after = finding, before, after
        self._edits = edits
        self._rule = next((one.fix for one in RULES if one.code == finding.rule), None)
        self._was_broken = ended_by(before.recording) is not None
        known = _matched(before.findings, after.findings, self._earlier)
        self._new = [one for at, one in enumerate(after.findings) if at not in known]
        self._same = [
            after.findings[at] for at, one in known.items() if before.findings[one] == finding
        ]

    def objections(self) -> Iterator[str]:
        """Yield the reasons why the fix does not hold."""
        yield from self._endings()
        yield from self._remaining()
        yield from (
            f"{one.rule} {one.name} appears{self._at(one)}: {self._message(one)}"
            for one in self._new
            if one.severity != "note" and not self._was_hidden(one)
        )
        yield from self._unjudged()
        yield from self._lost_line()
        yield from self._left_shape()
        yield from self._lost_gradients()
        yield from self._losses()

    def gains(self) -> Iterator[str]:
        """Yield what the fix brings."""
        is_noted = any(self._is_note(one) for one in self._after.findings)
        yield f"{self._finding.rule} {'is only a note now' if is_noted else 'gone'}"
        loss, grad_norm = self._after.summary.loss, self._after.summary.grad_norm
        if self._was_broken:
            yield f"loss {_number(loss)}, gradient norm {_number(grad_norm)}"
        else:
            was = self._before.summary.grad_norm
            earlier = self._before.summary.loss
            if self._after.training_run is not None and (earlier, loss) != (None, None):
                yield f"loss {_number(earlier)} -> {_number(loss)}"
            yield f"gradient norm {_number(was)} -> {_number(grad_norm)}"
        for code, reason in self._no_longer_run.items():
            if code in _NOTING:
                yield f"{code} not judged: {reason}"
        new = dict.fromkeys(f"{one.rule} {one.name}" for one in self._new)
        yield f"now found: {', '.join(new)}" if new else "no new finding"

    def _earlier(self, site: Site | None) -> tuple[str, int] | None:
        """Return file and line that a line of the repaired program has in the original."""
        return None if site is None else (site.file, line_before(site.file, site.line, self._edits))

    def _at(self, finding: Finding) -> str:
        where = self._earlier(finding.location)
        if where is None or finding.location is None:
            return ""
        # The line is one of the edited file, and is replaced by that of the original.
        shown = shown_site(finding.location, self._after.target.root).rpartition(":")[0]
        return f" at {shown}:{where[1]}"

    def _message(self, finding: Finding) -> str:
        """Return a message of the repaired program with the original's line numbers."""
        if finding.location is None:
            return finding.message
        file = finding.location.file
        return _LINE.sub(
            lambda found: f"line {line_before(file, int(found[1]), self._edits)}", finding.message
        )

    def _endings(self) -> Iterator[str]:
        error = ended_by(self._after.recording)
        was = ended_by(self._before.recording)
        if error is not None and (was is None or error.kind != was.kind):
            yield f"backward of the edited program raises {error.exception}"
            return
        ending, known = _raised(self._after), _raised(self._before)
        if ending is None or (known is not None and _same_exception(ending, known)):
            return
        at = ""
        if ending.line is not None:
            line = line_before(ending.file, ending.line, self._edits)
            at = f" at {shown_path(ending.file, self._after.target.root)}:{line}"
        yield f"the edited script raises {ending.exception}: {ending.message}{at}"

    def _remaining(self) -> Iterator[str]:
        """Yield how the finding remains, alone or as a consequence of another one."""
        for one in self._after.findings:
            explained = {other.rule for other in one.consequences}
            is_left = (
                one in self._same or self._is_elsewhere(one) or self._finding.rule in explained
            )
            if is_left and not self._is_note(one):
                yield f"{self._finding.rule} stays{self._measured(one)}"

    def _is_note(self, now: Finding) -> bool:
        """Return whether only a note stays, and may stay."""
        is_weaker = now.severity == "note" and self._finding.severity != "note"
        is_own = now.rule == self._finding.rule
        return is_own and is_weaker and self._rule is not None and self._rule.leaves_note

    def _is_elsewhere(self, other: Finding) -> bool:
        """Return whether the finding is now reported at another line, for the same parameters."""
        is_alike = other.rule == self._finding.rule and other in self._new
        return is_alike and not set(other.parameters).isdisjoint(self._finding.parameters)

    def _measured(self, now: Finding) -> str:
        """Return how bad a finding is and was, if it has a degree."""
        measures = {rule.code: rule.measures for rule in RULES}.get(self._finding.rule, ())
        old, new = dict(self._finding.evidence), dict(now.evidence)
        for measure in measures:
            a, b = old.get(measure.number), new.get(measure.number)
            if isinstance(a, float | int) and isinstance(b, float | int):
                return f" at {_number(b)} (was {_number(a)})"
        return ""

    def _was_hidden(self, finding: Finding) -> bool:
        """Return whether the finding is only seen because of the fix.

        Backward no longer raises, or the line of the fix now has the effect that is judged.
        """
        if self._was_broken and not finding.rule.startswith("GS5"):
            return True
        return self._rule is not None and finding.rule in self._rule.reveals

    def _unjudged(self) -> Iterator[str]:
        """Yield the rules that ran before and no longer run, apart from those that only note."""
        settled = (*self._settled, *(self._rule.ends if self._rule else ()))
        for code, reason in self._no_longer_run.items():
            if code not in settled and code not in _NOTING:
                yield f"{code} no longer runs: {reason}"

    @property
    def _no_longer_run(self) -> dict[str, str]:
        """Reasons by the codes of rules that ran before the fix and do not with it."""
        judged = set(self._after.rules.ran)
        reasons = {one.rule: one.reason for one in self._after.rules.skipped}
        lost = [code for code in self._before.rules.ran if code not in judged]
        return {code: reasons.get(code, "unknown") for code in lost}

    @property
    def _settled(self) -> tuple[str, ...]:
        """Codes of rules that the fix leaves nothing to judge."""
        if self._rule is None or not self._rule.settles:
            return ()
        was, now = (self._zeros(report) for report in (self._before, self._after))
        return self._rule.settles if now < was else ()

    def _zeros(self, report: Report) -> float:
        """Return the mean share of zeros in the gradients of the finding, 0 to 1."""
        names = set(self._finding.parameters)
        captured = report.recording.captured_steps
        shares = [
            stat.gradient.zero_share
            for recording in ([one.recording for one in captured] or [report.recording])
            for stat in recording.parameter_stats
            if recording.parameters[stat.parameter].name in names
            if stat.gradient is not None and stat.gradient.zero_share is not None
        ]
        return fmean(shares) if shares else 1.0

    def _lost_line(self) -> Iterator[str]:
        """Yield the line of the finding if nothing of it is in the graph of the loss any more."""
        where = self._finding.location
        if where is None or (self._rule is not None and self._rule.removes_operation):
            return
        line = (where.file, where.line)
        was = {(site.file, site.line) for site in _node_sites(self._before)}
        now = {self._earlier(site) for site in _node_sites(self._after)}
        # Without lines in the graph, nothing was captured that could show it.
        if line in was and now and line not in now:
            yield f"{shown_site(where, self._after.target.root)} no longer takes part in the loss"

    def _left_shape(self) -> Iterator[str]:
        """Yield the shape of the finding if another operation of its line gives it now."""
        where, rule = self._finding.location, self._rule
        shape = None if rule is None else dict(self._finding.evidence).get(rule.ends_shape)
        if where is None or shape is None:
            return
        line = (where.file, where.line)
        now = {call for site, call in _makers(self._after, shape) if self._earlier(site) == line}
        if any(call in now for site, call in _makers(self._before, shape) if site == where):
            yield f"another operation of {shown_site(where, self._after.target.root)} gives {shape}"

    def _lost_gradients(self) -> Iterator[str]:
        """Yield parameters that had a gradient, or should get one by the fix, and have none."""
        rows = {row.name: row for row in self._after.parameters}
        had = [row for row in self._before.parameters if row.reach == "gradient"]
        had_names = {row.name for row in had}
        broken = {row.name for row in had if row.grad is not None and row.grad.nonfinite}
        # What was copied does not learn; the copies do.
        copied = "tensors_trained" in dict(self._finding.evidence)
        wanted = () if copied else self._finding.parameters
        moving = {_owner(row.name) for row in rows.values() if row.reach == "gradient"}
        for name in dict.fromkeys([*(row.name for row in had), *wanted]):
            # What was not a number may turn out to be zero, as may a bias that cancels out.
            cancels = name not in had_names and _owner(name) in moving
            enough = ("gradient", "zero") if name in broken or cancels else ("gradient",)
            if name in rows and rows[name].requires_grad and rows[name].reach not in enough:
                yield f"{name} gets no gradient"
        for row in had:
            if row.name in rows and row.requires_grad and not rows[row.name].requires_grad:
                yield f"{row.name} no longer requires grad"
        if len(_terms(self._after)) < len(_terms(self._before)):
            yield "the loss has fewer terms"
        is_kept = self._rule is not None and self._rule.keeps_parameters
        own = {_without_copy(name) for name in rows}
        are_gone = is_kept and any(_without_copy(name) not in own for name in wanted)
        are_fewer = not copied and len(_trained(self._after)) < len(_trained(self._before))
        if are_gone or are_fewer:
            yield "the model has fewer parameters"

    def _losses(self) -> Iterator[str]:
        was, now = self._before.summary.loss, self._after.summary.loss
        norm = self._after.summary.grad_norm
        if now is not None and not math.isfinite(now):
            yield f"the loss is {_number(now)}"
        elif norm is None or not math.isfinite(norm) or norm == 0.0:
            yield f"the gradient norm is {_number(norm)}"
        elif was is not None and now is not None and abs(now) > _MOST_CHANGE * max(abs(was), 1.0):
            # A loss near zero rises by any factor.
            yield f"the loss is {_number(now)} (was {_number(was)})"


def _node_sites(report: Report) -> set[Site]:
    """Return the lines of the graph's nodes."""
    recording = report.recording
    sites = {node.site for node in recording.nodes}
    return {recording.sites[site] for site in sites if site is not None}


def _makers(report: Report, shape: object) -> Iterator[tuple[Site | None, str | None]]:
    """Yield line and module of the nodes of which an output has a shape, as `[8, 8]`."""
    for recording in [
        report.recording,
        *(one.recording for one in report.recording.captured_steps),
    ]:
        for node in recording.nodes:
            if any(one is not None and str(list(one.dims)) == shape for one in node.outputs):
                call = None if node.module_call is None else recording.calls[node.module_call]
                module = None if call is None else recording.modules[call.module].path
                yield (None if node.site is None else recording.sites[node.site]), module


def _terms(report: Report) -> tuple[LossTermRecord, ...]:
    return report.recording.evidence_of(LossTermRecord)


def _trained(report: Report) -> set[str]:
    """Return the names of the parameters that get a gradient, be it zero."""
    return {row.name for row in report.parameters if row.reach in ("gradient", "zero")}


def _owner(name: str) -> str:
    """Return the module of a parameter."""
    return name.rpartition(".")[0]


def _without_copy(name: str) -> str:
    """Return the name of a parameter without the number of its model, as `net.0` of `net#2.0`."""
    return _COPY.sub("", name)


def _same_exception(one: RunEnding, other: RunEnding) -> bool:
    return (one.exception, one.message) == (other.exception, other.message)


def _raised(report: Report) -> RunEnding | None:
    """Return the uncaught exception that ended a script; None without one."""
    endings = report.recording.evidence_of(RunEnding)
    return next((one for one in endings if one.kind == "raised"), None)


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return short(value)


_NUMBER = re.compile(r"\d[\d,.]*(?:e[+-]?\d+)?")


def _matched(
    before: Sequence[Finding],
    after: Sequence[Finding],
    earlier: Callable[[Site | None], tuple[str, int] | None],
) -> dict[int, int]:
    """Return the position of the finding before by that of the one after; each at most once.

    Findings are the same by their fingerprint, then by their line, then by their message apart from
    its numbers.

    Args:
        before: Findings of the program as it is.
        after: Findings of the edited program.
        earlier: Returns file and line that a line of the edited program has in the original.
    """
    found: dict[int, int] = {}
    for is_same in (
        lambda old, new: old.fingerprint == new.fingerprint,
        lambda old, new: _line(old.location) == earlier(new.location),
        lambda old, new: _description(old) == _description(new),
    ):
        for at, new in _left(after, found):
            for position, old in _left(before, found.values()):
                if old.rule == new.rule and is_same(old, new):
                    found[at] = position
                    break
    return found


def _left(findings: Sequence[Finding], taken: Iterable[int]) -> list[tuple[int, Finding]]:
    gone = set(taken)
    return [(at, one) for at, one in enumerate(findings) if at not in gone]


def _line(site: Site | None) -> tuple[str, int] | None:
    return None if site is None else (site.file, site.line)


def _description(finding: Finding) -> str:
    return _NUMBER.sub("#", finding.message)
