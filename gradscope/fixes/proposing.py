"""Proposes the edits that may fix findings."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import cast

from gradscope.analysis.view import shown_path
from gradscope.frozen import dataclass
from gradscope.recording.finding import Edit, Finding, Fix, Safety
from gradscope.recording.records import Recording
from gradscope.rules.catalogue import RULES
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import Edits, FixContext, FixFunction, FixRule
from gradscope.rules.rule import Rule
from gradscope.rules.selection import rules_named
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.text_edits import applied, by_file, diff_of, line_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A finding and the edits that may fix it, of which none is tried yet."""

    finding: Finding
    safety: Safety
    candidates: tuple[tuple[Edit, ...], ...]
    """The edits of each possible fix, the best first."""
    is_search: bool
    """Whether all candidates are tried."""


class Proposals:
    """The fixes of a recording's findings.

    Args:
        recording: The recording.
        fix_only: Selectors of the rules to fix; all if there are none.
    """

    def __init__(self, recording: Recording, fix_only: Iterable[str] = ()) -> None:
        # A capture that equals an earlier one offers the same edits.
        captured = [one.recording for one in recording.captured_steps if one.same_as is None]
        self._contexts = [RuleContext(one) for one in (recording, *captured)]
        self._root = recording.target.root
        self._rules = [rule for rule in _selected(fix_only) if rule.fix is not None]
        self.files = SourceFiles(recording, *captured)

    def of(self, findings: Iterable[Finding]) -> Iterator[Proposal]:
        """Yield the proposals for the findings that have one."""
        by_code = {rule.code: rule for rule in self._rules}
        for finding in findings:
            rule = by_code.get(finding.rule)
            if rule is None or rule.fix is None:
                continue
            candidates = possible_edits(rule, finding, self._contexts, self.files)
            if candidates:
                yield Proposal(
                    finding=finding,
                    safety=rule.fix.safety,
                    candidates=candidates,
                    is_search=rule.fix.is_search,
                )

    def fix(self, proposal: Proposal, edits: tuple[Edit, ...]) -> Fix:
        """Return one of the possible fixes, which was not run."""
        return Fix(safety=proposal.safety, edits=edits, diff=self.diff(edits))

    def added(self, edits: tuple[Edit, ...]) -> str:
        """Return the lines that edits add, in one line."""
        lines = self.diff(edits).split("\n")
        # The head of a diff begins with pluses too.
        added = [line[1:].strip() for line in lines if line[:1] == "+" and line[:3] != "+++"]
        return " / ".join(line.partition("  #")[0] for line in added)

    def diff(self, edits: tuple[Edit, ...]) -> str:
        """Return edits as a unified diff."""
        return diff_of(edits, self._text, lambda file: shown_path(file, self._root))

    def shown(self, file: str, line: int, edits: Iterable[Edit]) -> str:
        """Return a line of an edited file as `file:line` of the original."""
        return f"{shown_path(file, self._root)}:{line_before(file, line, edits)}"

    def edited(self, edits: Iterable[Edit]) -> dict[str, str]:
        """Return the texts of the edited files, by path."""
        changes = by_file(edits)
        return {file: applied(self._text(file), changes[file]) for file in changes}

    def _text(self, file: str) -> str:
        read = self.files.read(file)
        assert read is not None  # the edits were made on it
        return read.text


def _selected(selectors: Iterable[str]) -> list[type[Rule]]:
    chosen = {rule for selector in selectors for rule in rules_named(selector)}
    return [rule for rule in RULES if rule in chosen or not chosen]


def possible_edits(
    rule: type[Rule], finding: Finding, contexts: Iterable[RuleContext], files: SourceFiles
) -> tuple[Edits, ...]:
    """Return the edits of each possible fix, the best first, from the first recording with any.

    Args:
        rule: The rule of the finding, which has a fix.
        finding: What is to be fixed.
        contexts: Recordings of the program.
        files: Its files.
    """
    assert rule.fix is not None
    site = rule.fix.line(finding)
    source = files.at(site)
    is_left = finding.severity == "note" and not rule.fix.fixes_notes
    if site is None or source is None or is_left:
        return ()
    function = _function_of(rule, rule.fix)
    for context in contexts:
        found = function(
            FixContext(finding=finding, context=context, files=files, source=source, site=site)
        )
        candidates = tuple(dict.fromkeys(edits for edits in found if edits))
        if candidates:
            return candidates
    return ()


def _function_of(rule: type[Rule], fix: FixRule) -> FixFunction:
    # Fixes use libcst, which is optional and slow to import: only those that are needed are.
    package = rule.__module__.rpartition(".")[0]
    module = import_module(f"{package}.{fix.module}")
    return cast(FixFunction, getattr(module, fix.function or rule.name.replace("-", "_")))
