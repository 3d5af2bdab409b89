"""Keeps a page of many sheets small enough to be sent: pictures go where there is room for them."""

from collections.abc import Sequence
from dataclasses import replace

from gradscope.report.html.page import sheet_size
from gradscope.report.html.picture import Sheet

ROOM = 2_800_000
"""Bytes for what the pictures of all sheets draw; beside them a page is about five million."""


def within(room: int, sheets: Sequence[Sheet], urgency: Sequence[int], alone: str) -> list[Sheet]:
    """Return the sheets with the pictures that there is room for.

    Args:
        room: Bytes for all of them.
        sheets: In the order of the page.
        urgency: Of each sheet; those of the lowest are given room first.
        alone: What shows the pictures that are left out.
    """
    found = list(sheets)
    for place in sorted(range(len(sheets)), key=urgency.__getitem__):
        size = sheet_size(sheets[place])
        if size <= room:
            room -= size
        else:
            found[place] = _without_pictures(sheets[place], alone)
    return found


def _without_pictures(sheet: Sheet, alone: str) -> Sheet:
    words = sheet.words
    note = ("Pictures and tables are left out, to keep the file small", (alone,))
    told = replace(
        words,
        # Nothing is there that a button could show.
        cards=tuple(replace(card, module=None, step=None) for card in words.cards),
        notes=(note, *words.notes),
    )
    return replace(sheet, words=told, pictures=(), modules={})
