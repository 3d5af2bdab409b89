"""Lowers the learning rate."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.numbers import literal_of, number_code
from gradscope.source_edits.optimizers import optimizer_call
from gradscope.source_edits.source_files import SourceFiles

_FACTORS = (3, 10, 30, 100)


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits that divide the learning rate by several factors."""
    source = files.at(finding.location)
    call = None if source is None else optimizer_call(source, finding.location)
    if source is None or call is None:
        return
    named = [one for one in call.args if one.keyword is not None and one.keyword.value == "lr"]
    given = named or call.args[1:2]
    if not given or given[0].star or not (named or given[0].keyword is None):
        return
    rate = literal_of(source, given[0].value)
    used = dict(finding.evidence)["learning_rate"]
    if rate is not None and rate.evaluated_value > 0 and _is_same(rate.evaluated_value, used):
        for factor in _FACTORS:
            lower = cst.parse_expression(number_code(rate.evaluated_value / factor))
            yield source.edits({rate: lower})


def _is_same(rate: float, used: float | str | bool | None) -> bool:
    """Return whether the steps used a rate; a schedule uses less of it."""
    return not isinstance(used, float | int) or used <= rate
