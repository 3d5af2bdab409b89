"""Writes a page: sheets in a template, with styles, scripts and data inside."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files

from gradscope.errors import GradscopeError
from gradscope.report.html.columns import Json
from gradscope.report.html.picture import Sheet

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs
except ModuleNotFoundError as error:
    raise GradscopeError(
        f"pages of HTML are made with {error.name}, which is not installed",
        help="pip install plotly jinja2",
    ) from None

SCRIPTS = (
    "columns",
    "figures",
    "sheet",
    "table",
    "hover",
    "tree",
    "plot",
    "graph",
    "timeline",
    "page",
)
"""Of `assets/`, in the order in which they run: they share one scope."""
STYLES = ("page", "graph", "timeline")

_ASSETS = files("gradscope.report.html") / "assets"
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render_page(sheets: Sequence[Sheet], title: str) -> str:
    """Return a page that needs nothing beside itself, without a last line break.

    Args:
        sheets: What it shows, at least one.
        title: Of the window.
    """
    has_plots = any(picture.kind == "plot" for sheet in sheets for picture in sheet.pictures)
    scripts = [get_plotlyjs()] if has_plots else []
    scripts.append(_own_script())
    environment = Environment(
        loader=PackageLoader("gradscope.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return (
        environment.get_template("page.html")
        .render(
            title=title,
            policy=_policy(scripts),
            style=Markup(_own("css", STYLES)),
            scripts=[Markup(script) for script in scripts],
            sheets=sheets,
            data=[Markup(embedded_json(_data(sheet))) for sheet in sheets],
        )
        .rstrip("\n")
    )


def embedded_json(value: Json) -> str:
    """Return JSON that nothing in an HTML page can take for markup."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def sheet_size(sheet: Sheet) -> int:
    """Return how many bytes of a page the data of a sheet takes."""
    return len(embedded_json(_data(sheet)))


def _data(sheet: Sheet) -> dict[str, Json]:
    pictures: Mapping[str, Json] = {
        picture.name: {"kind": picture.kind, "content": picture.content}
        for picture in sheet.pictures
    }
    return {"modules": sheet.modules, "pictures": pictures}


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
