"""Raises the limit of a clip to the one that `auto` takes."""

from collections.abc import Iterator

import libcst as cst

from gradscope.analysis.clipping.limits import level_of
from gradscope.phrasing import literal
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.clips import judged_series
from gradscope.source_edits.numbers import literal_of
from gradscope.source_edits.source_file import only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the limit's literal."""
    source = files.at(finding.location)
    advised = _advised(finding, context)
    if source is None or finding.location is None or advised is None:
        return
    clip = only(
        one
        for one in source.on_line(finding.location.line, cst.Call)
        if source.qualified(one.func).endswith("clip_grad_norm_")
    )
    if clip is None:
        return
    named = [one for one in clip.args if one.keyword and one.keyword.value == "max_norm"]
    given = named or [one for one in clip.args[1:2] if one.keyword is None and not one.star]
    limit = literal_of(source, given[0].value) if given else None
    if limit is not None and limit.evaluated_value == dict(finding.evidence)["limit"]:
        yield source.edits({limit: cst.parse_expression(literal(advised))})


def _advised(finding: Finding, context: RuleContext) -> float | None:
    series = only(
        one for one in context.shared(judged_series) if context.site(one.site) == finding.location
    )
    level = None if series is None else level_of([point.norm for point in series.typical])
    return None if level is None else level.limit
