"""How wide strips are drawn, and what stands beside them."""

from collections.abc import Iterable

from gradscope.analysis.folding import last_name
from gradscope.analysis.rows import ModuleRow
from gradscope.report.document import StripLayout

LABEL = 12
"""Width of short labels."""
_GAP = 2
_WIDE = 112
"""Characters of a line that has room for extremes."""
_MODULE = 17
_COURSE, _EXTREME = 21, 26
_LONGEST = 84


def layout_for(width: int, *, label: int) -> StripLayout:
    """Return the layout of a line of that width, with labels of that width."""
    extreme = _EXTREME if width >= _WIDE else 0
    room = width - label - _COURSE - 2 * _GAP - (extreme + _GAP if extreme else 0)
    return StripLayout(
        label=label, strip=max(min(room, _LONGEST), 8), course=_COURSE, extreme=extreme
    )


def module_layout(width: int, modules: Iterable[ModuleRow]) -> StripLayout:
    """Return the layout for strips whose labels are the names of modules."""
    # Containers below the root may be merged with it.
    names = ((row.path if row.depth < 2 else last_name(row), row) for row in modules)
    widths = (2 * row.depth + len(f"{name} {row.class_name}") for name, row in names)
    widest = max(widths, default=0)
    label = max(min(width * 3 // 10, 30, max(widest, _MODULE)), 10)
    return layout_for(width, label=label)
