"""GS329: words of a filter that exempts no norm from weight decay."""

import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_OF_NORM = re.compile(r"norm|ln|bn|gamma", re.IGNORECASE)
"""Words that mean the parameters of norms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayFilterWithoutMatch(Rule):
    """A filter that exempts norms from weight decay by their name matches none of them.

    What it finds:
        Parameter groups for weight decay that a script forms by names, such as
        `no_decay = ["bias", "LayerNorm.weight"]`, in a model whose norms have other names, such as
        `ln_1.weight`.

    Why it matters:
        Weight decay pulls the scales of the norms towards 0, which the script meant to prevent.
        Nothing fails: a word that no name contains is simply never true.

    How it is measured:
        The file that makes the optimizer is searched for `any(word in name for word in words)`,
        where the words are those of a variable, an argument or a setting, and for `"norm" in name
        or "bias" in name`. Such a filter is judged if the parameters whose names it matches are
        exactly those without weight decay. The rule reports a word that means norms and is in no
        name of the model, if parameters of norms have weight decay.

    How to fix it:
        Use a part of the norms' names, or choose them by class or by shape: `p.ndim < 2`.

    When it may be wrong:
        If the script's list serves several models, and the decay of these norms is meant.

    Source:
        huggingface/transformers pull request 35927 and unslothai/unsloth-zoo pull request 684:
        norms that the names did not match.
    """

    code: ClassVar[str] = "GS329"
    name: ClassVar[str] = "decay-filter-without-match"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(series.record is not None for series in context.shared(Windows).series):
            return None
        return "the construction of no optimizer was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every such list of words."""
        for series in context.shared(Windows).series:
            for site, words in _filters(series).items():
                dead, norms = _missed(context, series, words)
                if not dead or not norms:
                    continue
                listed = " and ".join(map(repr, dead))
                first = context.recording.parameters[norms[0]].name
                yield self.finding(
                    context,
                    message=(
                        f"{listed} {'is' if len(dead) == 1 else 'are'} in no parameter's name: "
                        f"weight decay shrinks {counted(len(norms), 'parameter')} of norms, such "
                        f"as {first}"
                    ),
                    remedy="use a part of the norms' names, or choose them by class or by shape: "
                    "p.ndim < 2",
                    site=site,
                    related=(
                        context.related(
                            None if series.record is None else series.record.site, "the optimizer"
                        ),
                    ),
                    parameters=norms,
                    evidence={"words_without_match": len(dead), "decayed_norms": len(norms)},
                    count=len(norms),
                )


def _filters(series: Series) -> dict[int, tuple[str, ...]]:
    """Return the words of each list, by its line."""
    found: dict[int, tuple[str, ...]] = {}
    for word, site in () if series.record is None else series.record.name_filters:
        found[site] = (*found.get(site, ()), word)
    return found


def _missed(
    context: RuleContext, series: Series, words: tuple[str, ...]
) -> tuple[list[str], list[int]]:
    """Return words that mean norms and match nothing, and the norms with weight decay.

    Both are empty if the filter is not the one that formed the groups.
    """
    if series.record is None:
        return [], []
    records = context.recording.parameters
    held = sorted(series.record.parameters)
    matched = [index for index in held if any(word in records[index].name for word in words)]
    if matched != sorted(series.record.undecayed):
        return [], []
    names = [record.name for record in records]
    dead = [
        word for word in words if _OF_NORM.search(word) and not any(word in name for name in names)
    ]
    modules = context.recording.modules
    norms = [
        index
        for index in held
        if index not in matched and "Norm" in modules[records[index].module].class_name
    ]
    return dead, norms
