"""Labels for the rows of a picture, from names of any kind."""

from collections.abc import Sequence

from gradscope.report.html.pictures.lettering import lettered

_LONGEST = 34
"""Signs of a label."""


def common_prefix(names: Sequence[str]) -> str:
    """Return the modules that all names begin with, as `model.layers.`; may be empty.

    Of each name, one part at least is left.
    """
    parts = [name.split(".") for name in names]
    shared: list[str] = []
    for column in zip(*(part[:-1] for part in parts), strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "".join(f"{part}." for part in shared)


def row_labels(names: Sequence[str]) -> list[str]:
    """Return a label for each row, no two alike: rows of one label would be one."""
    labels: dict[str, None] = {}
    for name in names:
        label = lettered(name, _LONGEST)
        turn = 2
        while label in labels:
            label = f"{lettered(name, _LONGEST)} ({turn})"
            turn += 1
        labels[label] = None
    return list(labels)
