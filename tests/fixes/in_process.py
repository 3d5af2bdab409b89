"""Fixes programs as the commands do, in this process."""

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gradscope.analysis.report import Report
from gradscope.fixes.fixing import best_of
from gradscope.fixes.proposing import Proposals
from gradscope.fixes.verification import result_of
from gradscope.recording.finding import Finding
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.rules.selection import parsed_selectors
from tests.rules.inspecting import report_of_file
from tests.rules.watching import recording_of_script


@dataclass(frozen=True, kw_only=True)
class TriedFix:
    """A fix, and the program with it."""

    finding: Finding
    safety: str
    diff: str
    texts: dict[str, str]
    """The texts of the edited files, by path."""
    is_verified: bool
    verdict: str
    after: Report | str

    @property
    def added(self):
        """Return the lines that the edit adds, without indentation."""
        return tuple(line[1:].strip() for line in self._changed("+"))

    @property
    def removed(self):
        return tuple(line[1:].strip() for line in self._changed("-"))

    def _changed(self, sign):
        lines = self.diff.split("\n")
        return [one for one in lines if one.startswith(sign) and one[:3] != 3 * sign]


def training_report(path: Path) -> Report:
    """Return what `gradscope run` reports of a script."""
    (path.parent / "run.gradscope").unlink(missing_ok=True)
    with contextlib.suppress(Exception):  # of the script
        recording_of_script(path, path.parent)
    recording = load_recording(path.parent / "run.gradscope")
    return Report.from_recording(recording, judge(recording))


def fixes_of(
    path: Path, rule: str, run: Callable[[Path], Report] = report_of_file
) -> tuple[Report, list[TriedFix]]:
    """Return the report of a program, and each fix of a rule's findings.

    The first edits that are verified count; without any, the first ones. Files stay as they are.
    """
    before = _run(run, path)
    assert not isinstance(before, str), before
    proposals = Proposals(before.recording, parsed_selectors([rule]))
    found = []
    for proposal in list(proposals.of(before.findings)):
        tried = [
            _tried(proposals, before, proposal, edits, run, path) for edits in proposal.candidates
        ]
        if proposal.is_search:
            found.append(tried[best_of([(one.is_verified, one.after) for one in tried])])
        else:
            found.append(next((one for one in tried if one.is_verified), tried[0]))
    return before, found


def _tried(proposals, before, proposal, edits, run, path) -> TriedFix:
    texts = proposals.edited(edits)
    kept = {file: Path(file).read_bytes() for file in texts}
    try:
        for file, text in texts.items():
            read = proposals.files.read(file)
            Path(file).write_bytes(text.encode(read.encoding))
        after = _run(run, path)
    finally:
        for file, content in kept.items():
            Path(file).write_bytes(content)
    if isinstance(after, str):
        is_verified, verdict = False, after
    else:
        result = result_of(proposal.finding, before, after, edits)
        is_verified, verdict = result.is_verified, result.text
    return TriedFix(
        finding=proposal.finding,
        safety=proposal.safety,
        diff=proposals.diff(edits),
        texts=texts,
        is_verified=is_verified,
        verdict=verdict,
        after=after,
    )


def _run(run, path: Path) -> Report | str:
    """Return the report of a program, or why there is none; forget the modules of its folder."""
    known = set(sys.modules)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return run(path)
    except Exception as error:  # noqa: BLE001 - of the program
        return f"{type(error).__name__}: {error}"
    finally:
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == path.parent:
                del sys.modules[name]
