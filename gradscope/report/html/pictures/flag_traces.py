"""Flags as traces of plotly: a line over the places of a finding, and its code at a mark."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from gradscope.analysis.report import Report
from gradscope.phrasing import printable
from gradscope.recording.finding import SEVERITIES
from gradscope.report.html.columns import Json
from gradscope.report.html.pictures.flags import Flag
from gradscope.report.html.pictures.lettering import lettered
from gradscope.report.html.words import module_of_finding

_WIDTH = 76
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
            "x": [place for flag in flags for place in (flag.first - 0.5, flag.last + 0.5, None)],
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
    lines = wrap(printable(finding.message)[:_LONGEST], _WIDTH)
    return "<br>".join(
        [f"<b>{lettered(f'{finding.rule} {finding.name}')}</b>", *map(lettered, lines)]
    )
