"""How wide text is drawn, as far as that can be told without the reader's fonts."""

from unicodedata import east_asian_width

_NARROW = frozenset("iIjl.,:;|!'`()[]{}ft-/\\ r")
_WIDE = frozenset("mwMW@%…✂")
_SLACK = 1.06
"""Fonts differ, and none may be wider than its frame."""


def text_width(text: str, size: float) -> float:
    """Return about how many pixels a line takes in a common sans-serif font of that size."""
    return _SLACK * size * sum(_em(sign) for sign in text)


def _em(sign: str) -> float:
    if sign in _NARROW:
        return 0.34
    if sign in _WIDE:
        return 0.9
    if sign.isupper():
        return 0.68
    return 1.0 if not sign.isascii() and east_asian_width(sign) in "WFA" else 0.57
