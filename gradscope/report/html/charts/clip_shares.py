"""Contributions to the norm: modules, and in each the parameters, by their share of it."""

from collections.abc import Mapping, Sequence

from gradscope.analysis.clipping.sections import Contribution, Contributions, Section
from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.report.documents.clipping_phrasing import headline
from gradscope.report.html.charts.axes import hover, lettered, number
from gradscope.report.html.columns import Json, ModuleIndices, numbers, positions, texts
from gradscope.report.html.page import Chart
from gradscope.report.html.tables import column
from gradscope.report.number_format import percent

_MODULES = 30
_PARTS = 6
"""Number of parameters of a module that are drawn separately; the others are merged."""
_NAME = 44
"""Maximum length of a module's name in characters."""
# They alternate, so that pieces beside each other differ.
_SHADES = ("@series-0", "@series-4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a module's bar."""

    title: str
    share: float
    of: Contribution | None
    """Contribution that the bar shows; None for several parameters together."""

    @property
    def parameter(self) -> str | None:
        """The name of the parameter."""
        return None if self.of is None else self.of.name


def share_chart(section: Section, report: Report) -> Chart | None:
    """Return the chart; None if no gradient was measured."""
    found = section.contributions
    if not found.parameters:
        return None
    shown = found.modules[:_MODULES]
    bars = [parts_of(module, found) for module in shown]
    known = _Indices(report)
    data: list[Json] = [
        _layer(position, shown, bars, known) for position in range(max(map(len, bars)))
    ]
    data.append(_largest(shown))
    return Chart(
        name="clip-shares",
        kind="plot",
        title="Contributions to the norm",
        caption=_caption(section, shown),
        content={"figure": {"data": data, "layout": _layout(shown)}},
        height=70 + 26 * max(len(shown), 3),
    )


def _caption(section: Section, shown: Sequence[Contribution]) -> str:
    found = section.contributions
    parts = [
        f"Mean share of the {found.power}, by module and parameter; the mark shows the"
        " largest share in a single step."
    ]
    if len(found.modules) > len(shown):
        rest = found.modules[len(shown) :]
        share = percent(sum(one.share for one in rest))
        parts.append(f"{counted(len(rest), 'more module')} with {share} are in the table.")
    told = headline(section).replace("`", "")
    return " ".join([*parts, f"{told}." if told else ""])


def parts_of(module: Contribution, found: Contributions) -> list[Part]:
    """Return the pieces of a module's bar: its largest parameters, and the others together."""
    own = [one for one in found.parameters if module_of(one, found) == module.name]
    parts = [Part(title=one.name, share=one.share, of=one) for one in own[:_PARTS]]
    rest = own[_PARTS:]
    if rest:
        share = sum(one.share for one in rest)
        title = f"{counted(len(rest), 'other parameter')}"
        parts.append(Part(title=title, share=share, of=None))
    return parts


def module_of(parameter: Contribution, found: Contributions) -> str:
    """Return the module that a parameter is counted to: of those above it, the innermost."""
    name = parameter.name
    names = {module.name for module in found.modules}
    while name:
        name = name.rpartition(".")[0]
        if name in names:
            return name
    return ""


class _Indices:
    """Indices of modules and parameters in a report."""

    def __init__(self, report: Report) -> None:
        self._modules = ModuleIndices(report)
        self._parameters = {row.name: row for row in report.parameters}

    def module(self, parameter: str | None, module: str | None = None) -> int | None:
        """Return the module that a parameter is of; else the module of a path."""
        row = self._parameters.get(parameter or "")
        return self._modules.of(module if row is None else row.module)

    def parameter(self, name: str | None) -> int | None:
        """Return the row of a parameter."""
        row = self._parameters.get(name or "")
        return None if row is None else row.index


def _layer(
    position: int, shown: Sequence[Contribution], bars: Sequence[Sequence[Part]], known: _Indices
) -> dict[str, Json]:
    """Return the trace of one piece of every module."""
    rows = [
        (at, shown[at], parts[position]) for at, parts in enumerate(bars) if position < len(parts)
    ]
    links: Mapping[str, Json] = {
        "module": positions(known.module(part.parameter, module.name) for _, module, part in rows),
        "parameter": positions(known.parameter(part.parameter) for _, _, part in rows),
    }
    return {
        "type": "bar",
        "orientation": "h",
        "y": numbers(at for at, _, _ in rows),
        "x": numbers(part.share for _, _, part in rows),
        "marker": {
            "color": _SHADES[position % len(_SHADES)],
            "line": {"color": "@paper", "width": 1},
        },
        "text": [_tooltip(part, module) for _, module, part in rows],
        # The text is for the pointer alone.
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "meta": {"links": links},
    }


def _tooltip(part: Part, module: Contribution) -> str:
    one = part.of
    lines: list[tuple[str, str | None]] = [("share", percent(part.share))]
    if one is not None:
        lines += [
            ("max", percent(one.largest)),
            ("median norm", number(one.before)),
            ("after the clip", None if one.after is None else number(one.after)),
        ]
    lines.append((f"all of {module.name or 'the model itself'}", percent(module.share)))
    return hover(part.title, lines)


def _largest(shown: Sequence[Contribution]) -> dict[str, Json]:
    return {
        "type": "scatter",
        "mode": "markers",
        "y": numbers(range(len(shown))),
        "x": numbers(one.largest for one in shown),
        "marker": {"symbol": "line-ns-open", "color": "@ink", "size": 13, "line": {"width": 2}},
        "text": [
            hover(one.name or "the model itself", [("max", percent(one.largest))]) for one in shown
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _layout(shown: Sequence[Contribution]) -> dict[str, Json]:
    names: list[Json] = [lettered(one.name or "the model itself", _NAME) for one in shown]
    return {
        "margin": {"l": 60, "r": 16, "t": 12, "b": 8},
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {"tickformat": ".0%", "rangemode": "tozero", "side": "top"},
        "yaxis": {
            # Plotly counts upwards, and the first module is on top.
            "range": [len(shown) - 0.5, -0.5],
            "tickvals": list(range(len(shown))),
            "ticktext": names,
            "showgrid": False,
            "zeroline": False,
        },
    }


def share_table(section: Section, report: Report) -> Chart | None:
    """Return the table of all parameters; None if no gradient was measured."""
    found = section.contributions
    rows = found.parameters
    if not rows:
        return None
    known = _Indices(report)
    after = [one.after for one in rows]
    columns: list[Json] = [
        column("parameter", "name", texts(one.name for one in rows)),
        column("share", "share", numbers(one.share for one in rows), f"of the {found.power}"),
        column("max", "share", numbers(one.largest for one in rows), "in a single step"),
        column("largest in", "share", numbers(one.leads for one in rows), "of the steps"),
        column("norm before", "number", numbers(one.before for one in rows), "median"),
    ]
    if any(value is not None for value in after):
        columns.append(column("norm after", "number", numbers(after), "median"))
    return Chart(
        name="clip-parameters",
        kind="table",
        title=f"Parameters ({len(rows):,})",
        caption=f"By their mean share of the {found.power}.",
        height=min(90 + 26 * len(rows), 420),
        content={
            "name": "parameters",
            "columns": columns,
            "links": {
                "module": positions(known.module(one.name) for one in rows),
                "parameter": positions(known.parameter(one.name) for one in rows),
            },
        },
    )
