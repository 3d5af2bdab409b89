"""Writes a page: tabs in a template, with styles, scripts, data and manuals inside."""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Literal

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.report.document import plain
from gradscope.report.formats.notebook import inner_html
from gradscope.report.html.columns import Json
from gradscope.report.html.phrasing import PageTexts
from gradscope.rules.catalogue import RULES
from gradscope.rules.manual import Manual, manual_of

MANUAL_BUDGET = 250_000
"""Characters for the manuals of a page."""


ChartKind = Literal["plot", "graph", "table", "timeline", "two-steps"]


def manuals_of(texts: Sequence[PageTexts], budget: int = MANUAL_BUDGET) -> list[Manual]:
    """Return the manuals of the rules named on a page, as many of the first as fit.

    Args:
        texts: The texts of each tab.
        budget: Characters for all of them.
    """
    if sys.flags.optimize >= 2:  # Python left the docstrings out.
        return []
    rules = {rule.code: rule for rule in RULES}
    found = []
    for code in dict.fromkeys(code for one in texts for code in _codes(one)):
        if code not in rules:  # Of a recording that a newer version wrote.
            continue
        manual = manual_of(rules[code])
        budget -= _manual_size(manual)
        if budget < 0:
            break
        found.append(manual)
    return found


def _codes(texts: PageTexts) -> Iterator[str]:
    yield from (card.rule for card in texts.cards)
    for table in texts.summaries:
        yield from (cell.rule for row in table.rows for cell in row if cell.rule)


def _manual_size(manual: Manual) -> int:
    sections = (section.text for section in manual.sections)
    return (
        len(manual.summary)
        + sum(map(len, sections))
        + sum(len(threshold.text) for threshold in manual.thresholds)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of a tab."""

    name: str
    """Name of the chart's element, unique in its tab: `depth`."""
    kind: ChartKind
    title: str
    caption: str
    """Description of the chart in a sentence or two."""
    content: Mapping[str, Json]
    """Data that its painter draws."""
    is_wide: bool = True
    """Whether it takes the whole width where two charts would fit."""
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
    texts: PageTexts
    charts: tuple[Chart, ...]
    modules: Mapping[str, Json] = field(default_factory=dict)
    """Columns of the modules' table: see `tabs.module_columns`."""


# Tried here, so that a user who lacks one of them reads how to install it.
try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape
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
    "icicle",
    "envelope",
    "heat_levels",
    "plot",
    "sketch",
    "history",
    "graph",
    "timeline",
    "download",
    "two_steps",
    "manual",
    "address",
    "pin",
    "page",
)
"""Scripts in `assets/`, in order: they share one scope."""
STYLES = ("page", "graph", "timeline", "manual")
SERVED_SCRIPTS = ("served/served", "served/renewal")
SERVED_STYLE = "served/served"
"""Scripts and style of pages that a server keeps current."""

_ASSETS = files("gradscope.report.html") / "assets"
_COMMENTS = re.compile(r"^ *(?://.*|/\*[\s\S]*?\*/)\n", re.MULTILINE)
_UNBROKEN = re.compile(r"--[a-z][a-z-]*(?: \d+| N\b)?|\d[\d.,]* %")
# A name with `</script>` or `<!--` in it would end the element of the data, or hide its end.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How a server keeps a page current."""

    base: str
    """Address of the list of recordings, as seen from the page: `../`."""
    events: str
    """Address of the messages that the page has changed."""
    stamp: str
    """Text that changes with the page."""
    keys: tuple[str, ...] = ()
    """Keys of the recordings on the page, by which addresses name them."""
    state: str = ""
    """Kind of the state of what is shown."""
    state_text: str = ""


def render_page(tabs: Sequence[Tab], title: str, served: Served | None = None) -> str:
    """Return a page, without a last line break; it is self-contained unless it is served.

    Args:
        tabs: What it shows, at least one.
        title: Of the window.
        served: How a server keeps it current; None for a file.
    """
    has_plots = any(chart.kind == "plot" for tab in tabs for chart in tab.charts)
    # A server sends plotly by itself, once for all pages.
    plotly = get_plotlyjs() if has_plots and served is None else ""
    return _rendered(
        "page.html",
        [_own_script(() if served is None else SERVED_SCRIPTS)],
        served,
        plotly=plotly,
        title=title,
        has_plots=has_plots,
        tabs=tabs,
        manuals=manuals_of([tab.texts for tab in tabs]),
        data=[Markup(embedded_json(_data(tab))) for tab in tabs],
    )


def render_plain(template: str, served: Served, **values: object) -> str:
    """Return a served page without charts, without a last line break.

    Args:
        template: Name of its template.
        served: How it is served.
        values: Values of the template.
    """
    script = f"(() => {{\n'use strict';\n{_own('js', ('served/served', 'served/library'))}\n}})();"
    return _rendered(template, [script], served, plotly="", **values)


def plotly_script() -> str:
    """Return plotly's JavaScript."""
    script: str = get_plotlyjs()
    return script


def unbroken(text: str) -> Markup:
    """Return text as HTML that never breaks a line inside `--step 3` or `5 %`."""
    return Markup(_UNBROKEN.sub(r'<span class="unbroken">\g<0></span>', str(escape(text))))


def _rendered(
    template: str,
    scripts: Sequence[str],
    served: Served | None,
    *,
    plotly: str = "",
    **values: object,
) -> str:
    styles = STYLES if served is None else (*STYLES, SERVED_STYLE)
    text = (
        _environment()
        .get_template(template)
        .render(
            policy=_policy([plotly, *scripts] if plotly else scripts, is_served=served is not None),
            style=Markup(_own("css", styles)),
            scripts=[Markup(script) for script in scripts],
            plotly=Markup(plotly),
            served=served,
            **values,
        )
    )
    return text.rstrip("\n")


@cache  # it keeps the compiled templates: to compile them takes longer than to render a page
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gradscope.report.html"),
        autoescape=True,
        # A misspelt name in a template raises; jinja would write nothing for it.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["diff_mark"] = diff_mark
    environment.filters["unbroken"] = unbroken
    environment.filters["inner_html"] = lambda block: Markup(inner_html(block))
    return environment


def embedded_json(value: Json) -> str:
    """Return JSON that nothing in an HTML page can take for markup."""
    # JSON.parse refuses NaN, which Python would write otherwise.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def tab_size(tab: Tab) -> int:
    """Return the number of bytes that the data of a tab takes on a page."""
    return len(embedded_json(_data(tab)))


def _data(tab: Tab) -> dict[str, Json]:
    charts: Mapping[str, Json] = {
        chart.name: {"kind": chart.kind, "content": chart.content} for chart in tab.charts
    }
    return {"modules": tab.modules, "charts": charts}


def _own(kind: str, names: Sequence[str]) -> str:
    """Return scripts or styles as one text, without the comments in lines of their own."""
    texts = (_ASSETS.joinpath(f"{name}.{kind}").read_text("utf-8") for name in names)
    return _COMMENTS.sub("", "\n".join(texts))


def _own_script(further: Sequence[str]) -> str:
    # The function keeps the names of the scripts out of the scope that they share with plotly.
    return f"(() => {{\n'use strict';\n{_own('js', (*SCRIPTS, *further))}\n}})();"


def _policy(scripts: Sequence[str], *, is_served: bool) -> str:
    """Return a content policy that lets the page run its own scripts, and load nothing.

    A served page may ask its own server. Plotly writes styles into its elements, and draws images
    that it holds itself.
    """
    # Browsers normalise line ends before they hash a script.
    digests = (sha256(text.replace("\r\n", "\n").encode()).digest() for text in scripts)
    allowed = " ".join(f"'sha256-{b64encode(digest).decode('ascii')}'" for digest in digests)
    server = " 'self'" if is_served else ""
    rules = (
        "default-src 'none'",
        f"script-src {allowed}{server}",
        *(("connect-src 'self'",) if is_served else ()),
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def diff_mark(line: str) -> str:
    """Return the class of a line of a unified diff: `added`, `removed`, `place` or `same`."""
    if line.startswith(("+++", "---", "@@")):
        return "place"
    return {"+": "added", "-": "removed"}.get(line[:1], "same")


SIZE_BUDGET = 2_900_000
"""Maximum size in bytes of the data of all charts; the rest of a page has about five million."""


def within(size_budget: int, tabs: Sequence[Tab], urgency: Sequence[int], alone: str) -> list[Tab]:
    """Return the tabs with the charts that fit into the size budget.

    Args:
        size_budget: Bytes for all of them.
        tabs: In the order of the page.
        urgency: Priority of each tab: those with the lowest number get space first, and share it.
        alone: Command that shows the omitted charts.
    """
    found = list(tabs)
    for level in sorted(set(urgency)):
        positions = [position for position, own in enumerate(urgency) if own == level]
        # Small tabs leave more of the shared budget to the others.
        positions.sort(key=lambda position: tab_size(tabs[position]))
        for turn, position in enumerate(positions):
            found[position] = _fitting(
                tabs[position], size_budget // (len(positions) - turn), alone
            )
            size_budget -= tab_size(found[position])
    return found


def _fitting(tab: Tab, size_budget: int, alone: str) -> Tab:
    """Return the tab with those of its charts, the first ones first, that fit."""
    used, kept = _size(tab.modules), []
    for chart in tab.charts:
        size = _size(chart.content)
        if used + size <= size_budget:
            used += size
            kept.append(chart)
    if len(kept) == len(tab.charts):
        return tab
    left_out = [one.title for one in tab.charts if one not in kept]
    words = tab.texts
    note = ("Omitted to keep the file small", (*left_out, alone))
    told = replace(words, notes=(note, *words.notes))
    if kept:
        return replace(tab, texts=told, charts=tuple(kept))
    # No button has anything to show.
    cards = tuple(replace(card, module=None, step=None) for card in words.cards)
    return replace(tab, texts=replace(told, cards=cards), charts=(), modules={})


def _size(value: Json) -> int:
    return len(embedded_json(value))
