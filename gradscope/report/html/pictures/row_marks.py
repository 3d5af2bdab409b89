"""Findings on the rows of a heatmap that they are about."""

from collections.abc import Iterator, Mapping, Sequence

from gradscope.analysis.report import Report
from gradscope.report.html.columns import Json, numbers, places
from gradscope.report.html.pictures.heat import HeatRow
from gradscope.report.html.pictures.step_marks import finding_text


def marks_on_rows(
    rows: Sequence[HeatRow], labels: Sequence[str], report: Report
) -> Iterator[Mapping[str, Json]]:
    """Yield the findings that a step shows, on the rows that they are about."""
    owners = {parameter: place for place, row in enumerate(rows) for parameter in row.held}
    indices = {alias: row.index for row in report.parameters for alias in (row.name, *row.aliases)}
    marks = []
    for finding in reversed(report.findings):
        about = {owners[indices[name]] for name in finding.parameters if name in indices}
        # Where it is about every row, no row tells anything.
        if finding.step is not None and len(about) < len(rows):
            marks += [(finding, place) for place in sorted(about)]
    if not marks:
        return
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": "findings",
        "showlegend": False,
        "x": numbers(finding.step for finding, _ in marks),
        "y": [labels[place] for _, place in marks],
        "text": [finding_text(finding, report) for finding, _ in marks],
        "hovertemplate": "%{text}<br>%{y}<extra></extra>",
        "marker": {
            "symbol": "circle",
            "size": 9,
            "color": [f"@{finding.severity}" for finding, _ in marks],
            "line": {"width": 1.5, "color": "@paper"},
        },
        "meta": {
            "links": {
                "step": places(finding.step for finding, _ in marks),
                "module": places(rows[place].module for _, place in marks),
                "parameter": places(rows[place].parameter for _, place in marks),
            },
            "under": True,
        },
    }
