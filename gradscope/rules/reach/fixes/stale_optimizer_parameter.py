"""Makes the optimizer behind the last change to the model."""

from collections.abc import Iterator

from gradscope.recording.finding import Finding
from gradscope.recording.fix import Edit
from gradscope.rules.context import RuleContext
from gradscope.source_edits.optimizers import made_behind
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the line of the optimizer."""
    del context
    source = files.at(finding.location)
    if source is not None and finding.location is not None and finding.severity != "note":
        yield source.edits(made_behind(source, [finding.location, *finding.related]))
