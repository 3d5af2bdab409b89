"""Keeps a page of many sheets small enough to be sent: pictures go where there is room for them."""

from collections.abc import Sequence
from dataclasses import replace

from gradscope.report.html.columns import Json
from gradscope.report.html.page import embedded_json, sheet_size
from gradscope.report.html.picture import Sheet

ROOM = 2_900_000
"""Bytes for what the pictures of all sheets draw; beside them a page is about five million."""


def within(room: int, sheets: Sequence[Sheet], urgency: Sequence[int], alone: str) -> list[Sheet]:
    """Return the sheets with the pictures that there is room for.

    Args:
        room: Bytes for all of them.
        sheets: In the order of the page.
        urgency: Of each sheet; those of the lowest are given room first, and share it.
        alone: What shows the pictures that are left out.
    """
    found = list(sheets)
    for level in sorted(set(urgency)):
        places = [place for place, own in enumerate(urgency) if own == level]
        # Small sheets leave more of what is shared to the others.
        places.sort(key=lambda place: sheet_size(sheets[place]))
        for turn, place in enumerate(places):
            found[place] = _fitting(sheets[place], room // (len(places) - turn), alone)
            room -= sheet_size(found[place])
    return found


def _fitting(sheet: Sheet, room: int, alone: str) -> Sheet:
    """Return the sheet with those of its pictures, the first ones first, that fit."""
    used, kept = _size(sheet.modules), []
    for picture in sheet.pictures:
        size = _size(picture.content)
        if used + size <= room:
            used += size
            kept.append(picture)
    if len(kept) == len(sheet.pictures):
        return sheet
    left_out = [one.title for one in sheet.pictures if one not in kept]
    words = sheet.words
    note = ("Left out, to keep the file small", (*left_out, alone))
    told = replace(words, notes=(note, *words.notes))
    if kept:
        return replace(sheet, words=told, pictures=tuple(kept))
    # Nothing is there that a button could show.
    cards = tuple(replace(card, module=None, step=None) for card in words.cards)
    return replace(sheet, words=replace(told, cards=cards), pictures=(), modules={})


def _size(value: Json) -> int:
    return len(embedded_json(value))
