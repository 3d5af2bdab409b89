"""Gives the optimizer what replaced its parameters."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding, RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.source_edits.made_optimizers import (
    added_behind,
    made_again,
    made_behind,
    restored,
    stacked_values,
)
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that makes the optimizer later, or that adds a group of parameters to it."""
    del context
    source = files.at(finding.location)
    if source is not None and finding.location is not None and finding.severity != "note":
        lines: list[Site | RelatedLocation] = [finding.location, *finding.related]
        for change in (stacked_values, made_behind, added_behind, restored, made_again):
            yield source.edits(change(source, lines))
