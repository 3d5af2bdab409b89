"""Findings as flags over an axis of tensors: where each has to do with the forward."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from gradscope.analysis.report import Report
from gradscope.phrasing import printable
from gradscope.recording.finding import SEVERITIES, Finding
from gradscope.report.html.charts.forward_order import ForwardOrder
from gradscope.report.html.charts.lettering import lettered
from gradscope.report.html.columns import Json
from gradscope.report.html.modules import ModulePlaces
from gradscope.report.html.phrasing import module_of_finding

MOST_ROWS = 5
"""Flags over flags."""
_WIDTH = 0.05
"""Width of a flag's letters, as a share of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A finding over the places that it is about."""

    finding: Finding
    first: int
    last: int
    row: int
    """Row of the flag, from 0: flags in one row do not overlap."""


def flags(report: Report, order: ForwardOrder) -> tuple[Flag, ...]:
    """Return a flag for each finding that has to do with places on the axis, the worst first."""
    room = order.length * _WIDTH
    taken: list[list[tuple[float, float]]] = []
    found = []
    for finding in report.findings:
        positions = sorted(_positions(finding, report, order))
        if not positions:
            continue
        middle = (positions[0] + positions[-1]) / 2
        start, end = min(positions[0], middle - room / 2), max(positions[-1], middle + room / 2)
        row = _free_row(taken, start, end)
        found.append(Flag(finding=finding, first=positions[0], last=positions[-1], row=row))
    return tuple(found)


def _free_row(taken: list[list[tuple[float, float]]], start: float, end: float) -> int:
    """Return the lowest row with room, or the highest there may be, and take the room."""
    free = (
        row
        for row, spans in enumerate(taken)
        if all(end < first or last < start for first, last in spans)
    )
    row = next(free, min(len(taken), MOST_ROWS - 1))
    if row == len(taken):
        taken.append([])
    taken[row].append((start, end))
    return row


def _positions(finding: Finding, report: Report, order: ForwardOrder) -> Iterator[int]:
    """Yield the places of a finding: of its modules, else its parameters, else its line."""
    modules = _modules(finding, report)
    inside = [
        position
        for position, module in enumerate(order.modules)
        if modules.intersection(order.above(module))
    ]
    at_line = [
        position
        for row, position in zip(order.tensors, order.tensor_places, strict=True)
        if finding.location is not None and row.site == finding.location
    ]
    both = sorted(set(inside).intersection(at_line))
    yield from both or inside or _of_parameters(finding, report, order) or at_line


def _modules(finding: Finding, report: Report) -> frozenset[int]:
    found = ModulePlaces(report).each(finding.modules)
    # The model itself is everywhere, and tells no place.
    return frozenset(at for at in found if at is not None and report.modules[at].path)


def _of_parameters(finding: Finding, report: Report, order: ForwardOrder) -> Sequence[int]:
    names = set(finding.parameters)
    return [
        position
        for row, position in zip(report.parameters, order.parameter_places, strict=True)
        if names.intersection((row.name, *row.aliases))
    ]


_LINE_WIDTH = 76
_LONGEST = 400
_UNDER = 0.4
"""By how much of a row a line lies under its letters."""


def flag_traces(
    raised: Sequence[Flag], report: Report, first_row: int
) -> Iterator[Mapping[str, Json]]:
    """Yield traces on axis `y3`, from a row on upwards."""
    for severity in SEVERITIES:
        flags = [flag for flag in raised if flag.finding.severity == severity]
        if not flags:
            continue
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": [
                position for flag in flags for position in (flag.first - 0.5, flag.last + 0.5, None)
            ],
            "y": [row for flag in flags for row in (*[flag.row + first_row - _UNDER] * 2, None)],
            "yaxis": "y3",
            "line": {"color": f"@{severity}", "width": 3},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        yield {
            "type": "scatter",
            "mode": "markers+text",
            "x": [(flag.first + flag.last) / 2 for flag in flags],
            "y": [flag.row + first_row for flag in flags],
            "yaxis": "y3",
            "text": [flag.finding.rule for flag in flags],
            "textposition": "middle right",
            "textfont": {"color": f"@{severity}"},
            "marker": {"symbol": "triangle-down", "size": 11, "color": f"@{severity}"},
            "hoverinfo": "text",
            "hovertext": [_text(flag) for flag in flags],
            "showlegend": False,
            "meta": {
                "links": {"module": [module_of_finding(flag.finding, report) for flag in flags]},
                "under": True,
            },
        }


def _text(flag: Flag) -> str:
    finding = flag.finding
    lines = wrap(printable(finding.message)[:_LONGEST], _LINE_WIDTH)
    return "<br>".join(
        [f"<b>{lettered(f'{finding.rule} {finding.name}')}</b>", *map(lettered, lines)]
    )
