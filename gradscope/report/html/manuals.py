"""The manuals that a page holds: those of the rules that its findings name."""

import sys
from collections.abc import Iterator, Sequence

from gradscope.report.html.phrasing import PageTexts
from gradscope.rules.catalogue import RULES
from gradscope.rules.manual import Manual, manual_of

MANUAL_BUDGET = 250_000
"""Characters for the manuals of a page."""


def manuals_of(texts: Sequence[PageTexts], budget: int = MANUAL_BUDGET) -> list[Manual]:
    """Return the manuals of the rules named on a page, as many of the first as fit.

    Args:
        texts: The texts of each tab.
        budget: Characters for all of them.
    """
    if sys.flags.optimize >= 2:  # Python left the docstrings out.
        return []
    rules = {rule.code: rule for rule in RULES}
    found = []
    for code in dict.fromkeys(code for one in texts for code in _codes(one)):
        if code not in rules:  # Of a recording that a newer version wrote.
            continue
        manual = manual_of(rules[code])
        budget -= _size(manual)
        if budget < 0:
            break
        found.append(manual)
    return found


def _codes(texts: PageTexts) -> Iterator[str]:
    yield from (card.rule for card in texts.cards)
    for table in texts.summaries:
        yield from (cell.rule for row in table.rows for cell in row if cell.rule)


def _size(manual: Manual) -> int:
    sections = (section.text for section in manual.sections)
    return (
        len(manual.summary)
        + sum(map(len, sections))
        + sum(len(threshold.text) for threshold in manual.thresholds)
    )
