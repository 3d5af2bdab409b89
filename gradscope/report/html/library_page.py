"""The page that lists recordings, and the page that says why there is nothing to show."""

import math
from collections import Counter
from collections.abc import Sequence

from gradscope.frozen import dataclass
from gradscope.phrasing import counted, printable, short
from gradscope.recording.finding import SEVERITIES, Severity
from gradscope.recording.overview import LossCourse
from gradscope.report.html.charts.curves import DECADES
from gradscope.report.html.page import Served, render_plain

_WIDTH, _HEIGHT = 120, 24
"""Size of a curve in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A curve as a list shows it."""

    paths: tuple[str, ...]
    """Points of its lines, which break where it is not finite."""
    broken: tuple[float, ...]
    """Where it is not finite, in pixels from the left."""
    text: str
    """First and last number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRow:
    """A recording in the list."""

    key: str
    """Its name in addresses."""
    name: str
    state: str
    """Kind of its state, which is a class of the CSS."""
    state_text: str
    steps: str
    curve: Sparkline | None
    counts: tuple[tuple[Severity, str], ...]
    """Levels of findings, and how many of each."""
    verdict: str
    """What is said where there are no findings."""
    written: float
    """When it was last written, in seconds since the epoch."""
    age: str


def sparkline(losses: LossCourse | None) -> Sparkline | None:
    """Return the curve of some losses; None without any."""
    if losses is None:
        return None
    points = _on_scale(losses.points)
    finite = [value for _, value in points if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    paths: list[list[str]] = [[]]
    broken = []
    for at, value in points:
        x = round(_WIDTH * at, 1)
        if not math.isfinite(value):
            broken.append(x)
            paths.append([])
            continue
        # A curve without any range lies in the middle.
        share = (value - low) / (high - low) if high > low else 0.5
        # A pixel remains above and below, so that the stroke is not cut off.
        paths[-1].append(f"{x},{1 + (_HEIGHT - 2) * (1 - share):.1f}")
    # A single number between two broken ones has no line.
    return Sparkline(
        paths=tuple(" ".join(path) for path in paths if len(path) > 1),
        broken=tuple(broken),
        text=f"{short(losses.first)} → {short(losses.last)}",
    )


def _on_scale(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return logarithms of what is drawn, if it spans some orders of magnitude."""
    values = [value for _, value in points if math.isfinite(value)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low <= 0 or math.log10(high / low) <= DECADES:
        return points
    return [(at, math.log10(value) if math.isfinite(value) else value) for at, value in points]


def counts_of(levels: Sequence[Severity]) -> tuple[tuple[Severity, str], ...]:
    """Return `2 errors` and so on with their levels, the worst first."""
    found = Counter(levels)
    return tuple((level, counted(found[level], level)) for level in SEVERITIES if found[level])


def age_text(seconds: float) -> str:
    """Return how long ago something was: `now`, `5 min ago`, `3 days ago`."""
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            plural = "s" if unit == "day" and count > 1 else ""
            return f"{count:,} {unit}{plural} ago"
    return "now"


def render_library(rows: Sequence[LibraryRow], folder: str, served: Served) -> str:
    """Return the page that lists recordings.

    Args:
        rows: The recordings, in their order.
        folder: Folder that was searched.
        served: How the page is served.
    """
    return render_plain(
        "library.html", served, rows=rows, folder=printable(folder), size=(_WIDTH, _HEIGHT)
    )


def render_message(title: str, text: str, help: str, served: Served) -> str:
    """Return a page that says why there is nothing to show, until there is.

    Args:
        title: Of the page.
        text: What happened.
        help: What to do; may be empty.
        served: How the page is served.
    """
    return render_plain("message.html", served, title=title, text=text, help=help)
