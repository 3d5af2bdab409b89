"""Writes a page: tabs in a template, with styles, scripts and data inside."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.resources import files
from typing import Literal

from gradscope.errors import GradscopeError
from gradscope.report.document import plain
from gradscope.report.formats.notebook import inner_html
from gradscope.report.html.columns import Json
from gradscope.report.html.manuals import manuals_of
from gradscope.report.html.phrasing import Words

ChartKind = Literal["plot", "graph", "table", "timeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Something to look at."""

    name: str
    """Name of the chart's element, unique in its tab: `depth`."""
    kind: ChartKind
    title: str
    caption: str
    """What is drawn how, in a sentence or two."""
    content: Mapping[str, Json]
    """What its painter draws."""
    is_wide: bool = True
    """Whether it takes the whole width where there is room for two."""
    height: int = 420
    """Height in CSS pixels."""
    gist: str = ""
    """The line that stands for it where it is collapsed."""
    is_open: bool = True
    """Whether it is not collapsed at first."""

    @property
    def file_formats(self) -> tuple[str, ...]:
        """The formats of the files that a reader may save of it."""
        return ("csv", "png", "svg") if self.kind in ("plot", "graph") else ("csv",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """All that is shown of one thing reported on."""

    title: str
    words: Words
    charts: tuple[Chart, ...]
    modules: Mapping[str, Json] = field(default_factory=dict)
    """Columns, a row a module: see `tabs.module_columns`."""


try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs
except ModuleNotFoundError as error:
    raise GradscopeError(
        f"HTML reports need {error.name}, which is not installed",
        help="pip install plotly jinja2",
    ) from None

SCRIPTS = (
    "columns",
    "number_format",
    "tab",
    "table",
    "hover",
    "tree",
    "plot",
    "history",
    "graph",
    "timeline",
    "download",
    "manual",
    "address",
    "pin",
    "page",
)
"""Scripts in `assets/`, in order: they share one scope."""
STYLES = ("page", "graph", "timeline", "manual")

_ASSETS = files("gradscope.report.html") / "assets"
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render_page(tabs: Sequence[Tab], title: str) -> str:
    """Return a page that needs nothing beside itself, without a last line break.

    Args:
        tabs: What it shows, at least one.
        title: Of the window.
    """
    has_plots = any(chart.kind == "plot" for tab in tabs for chart in tab.charts)
    scripts = [get_plotlyjs()] if has_plots else []
    scripts.append(_own_script())
    environment = Environment(
        loader=PackageLoader("gradscope.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["inner_html"] = lambda block: Markup(inner_html(block))
    return (
        environment.get_template("page.html")
        .render(
            title=title,
            policy=_policy(scripts),
            style=Markup(_own("css", STYLES)),
            scripts=[Markup(script) for script in scripts],
            tabs=tabs,
            manuals=manuals_of([tab.words for tab in tabs]),
            data=[Markup(embedded_json(_data(tab))) for tab in tabs],
        )
        .rstrip("\n")
    )


def embedded_json(value: Json) -> str:
    """Return JSON that nothing in an HTML page can take for markup."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def tab_size(tab: Tab) -> int:
    """Return how many bytes of a page the data of a sheet takes."""
    return len(embedded_json(_data(tab)))


def _data(tab: Tab) -> dict[str, Json]:
    charts: Mapping[str, Json] = {
        chart.name: {"kind": chart.kind, "content": chart.content} for chart in tab.charts
    }
    return {"modules": tab.modules, "pictures": charts}


def _own(kind: str, names: Sequence[str]) -> str:
    return "\n".join(_ASSETS.joinpath(f"{name}.{kind}").read_text("utf-8") for name in names)


def _own_script() -> str:
    return f"(() => {{\n'use strict';\n{_own('js', SCRIPTS)}\n}})();"


def _policy(scripts: Sequence[str]) -> str:
    """Return a content policy that lets the page run its own scripts, and load nothing.

    Plotly writes styles into its elements, and draws images that it holds itself.
    """
    # Browsers hash a script's text after the line ends have been made alike.
    digests = (sha256(text.replace("\r\n", "\n").encode()).digest() for text in scripts)
    allowed = " ".join(f"'sha256-{b64encode(digest).decode('ascii')}'" for digest in digests)
    rules = (
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


SIZE_BUDGET = 2_900_000
"""Bytes for what the pictures of all sheets draw; beside them a page is about five million."""


def within(size_budget: int, tabs: Sequence[Tab], urgency: Sequence[int], alone: str) -> list[Tab]:
    """Return the sheets with the pictures that there is room for.

    Args:
        size_budget: Bytes for all of them.
        tabs: In the order of the page.
        urgency: Of each sheet; those of the lowest are given room first, and share it.
        alone: What shows the pictures that are left out.
    """
    found = list(tabs)
    for level in sorted(set(urgency)):
        positions = [position for position, own in enumerate(urgency) if own == level]
        # Small sheets leave more of what is shared to the others.
        positions.sort(key=lambda position: tab_size(tabs[position]))
        for turn, position in enumerate(positions):
            found[position] = _fitting(
                tabs[position], size_budget // (len(positions) - turn), alone
            )
            size_budget -= tab_size(found[position])
    return found


def _fitting(tab: Tab, size_budget: int, alone: str) -> Tab:
    """Return the sheet with those of its pictures, the first ones first, that fit."""
    used, kept = _size(tab.modules), []
    for chart in tab.charts:
        size = _size(chart.content)
        if used + size <= size_budget:
            used += size
            kept.append(chart)
    if len(kept) == len(tab.charts):
        return tab
    left_out = [one.title for one in tab.charts if one not in kept]
    words = tab.words
    note = ("Omitted to keep the file small", (*left_out, alone))
    told = replace(words, notes=(note, *words.notes))
    if kept:
        return replace(tab, words=told, charts=tuple(kept))
    # Nothing is there that a button could show.
    cards = tuple(replace(card, module=None, step=None) for card in words.cards)
    return replace(tab, words=replace(told, cards=cards), charts=(), modules={})


def _size(value: Json) -> int:
    return len(embedded_json(value))
