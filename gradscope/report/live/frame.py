"""The lines that a display shows of a run that goes on, for a page of any size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from gradscope.counting import counted
from gradscope.recording.finding import Finding
from gradscope.report.figures import figure
from gradscope.report.finding_words import level_counts
from gradscope.report.live.curve_lines import LineLayout, curve_lines
from gradscope.report.live.layer_lines import layer_lines
from gradscope.report.live.live_run import LiveRun
from gradscope.report.page import Page
from gradscope.report.paths import shown_site
from gradscope.report.run.words import duration
from gradscope.report.text_findings import SEVERITY_STYLES

_FINDINGS = 3
"""As many as are shown before the layers, where both do not fit."""
_LAYERS_LEAST, _LAYERS_MOST = 3, 14
"""Lines of layers, with their title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the rules make of the steps so far."""

    findings: tuple[Finding, ...]
    """The worst first."""
    steps: int
    """How many steps they had seen."""


def frame(
    run: LiveRun, judged: Judged | None, page: Page, height: int, *, planned: int | None = None
) -> list[Text]:
    """Return the lines, none longer than the page is wide.

    Args:
        run: What is known of the run.
        judged: None where no rule has judged yet.
        page: Its width, characters and folder.
        height: How many lines there is room for.
        planned: How many steps are recorded at most, where that is limited.
    """
    lines = [_header(run, planned, page)]
    room = height - 1
    found = list(_findings(judged, page))
    layout = LineLayout.of(page)
    curves = curve_lines(run, layout, page, max(room - min(len(found), _FINDINGS), 1))
    lines += curves[:room]
    room -= len(curves)
    layers: list[Text] = []
    kept = min(len(found), 1 + _FINDINGS)
    if room - kept >= _LAYERS_LEAST:
        layers = layer_lines(run.layers, layout, page, min(room - kept, _LAYERS_MOST))
    lines += layers
    room -= len(layers)
    lines += _cut(found, room, page)
    for line in lines:
        line.truncate(page.width, overflow="crop")
    return lines[:height]


def _header(run: LiveRun, planned: int | None, page: Page) -> Text:
    """Return `gradscope run train.py · 1,204 steps · 83.3 steps/s · 1 min 12 s`, and a rule."""
    words = _progress(run, planned, page) or ["waits for the first step of an optimizer"]
    title = page.text(run.name, "bold")
    for word in words:
        title.append(page.signs.separator, "dim").append(word)
    program = Text("gradscope run ", style="bold cyan")
    if program.cell_len + title.cell_len <= page.width:
        title = program.append_text(title)
    rest = page.width - title.cell_len - 1
    return title.append(f" {page.signs.rule * max(rest, 0)}", "dim cyan")


def _progress(run: LiveRun, planned: int | None, page: Page) -> list[str]:
    if not run.steps:
        return []
    words = [f"{run.steps:,} of {planned:,} steps" if planned else counted(run.steps, "step")]
    if run.is_over:
        return [*words, "nothing more is recorded"]
    speed = [] if run.speed is None else [f"{figure(run.speed, page.signs)} steps/s"]
    return [*words, *speed, duration(run.seconds)]


def _findings(judged: Judged | None, page: Page) -> Iterator[Text]:
    if judged is None:
        return
    after = f"  after {counted(judged.steps, 'step')}"
    if not judged.findings:
        yield Text("no findings", style="bold green").append(after, "not bold dim")
        return
    worst = SEVERITY_STYLES[judged.findings[0].severity]
    yield Text(", ".join(level_counts(judged.findings)), worst).append(
        after, "not bold default dim"
    )
    for finding in judged.findings:
        yield _finding(finding, page)


def _finding(finding: Finding, page: Page) -> Text:
    """Return `error[GS301] train.py:10 missing-zero-grad: backward() adds to…` in a line."""
    text = Text("  ").append(
        f"{finding.severity}[{finding.rule}]", SEVERITY_STYLES[finding.severity]
    )
    if finding.location is not None:
        text.append(f" {page.spell(shown_site(finding.location, page.root))}", "dim")
    text.append(f" {finding.name}: ", "bold")
    message = page.spell(" ".join(finding.message.split()))
    room = page.width - text.cell_len
    if len(message) > room:
        message = message[: max(room - len(page.signs.ellipsis), 0)] + page.signs.ellipsis
    return text.append(message)


def _cut(lines: Sequence[Text], room: int, page: Page) -> list[Text]:
    """Return the lines that there is room for, the last one saying how many more there are."""
    if len(lines) <= room or room < 1:
        return list(lines[: max(room, 0)])
    if room == 1:
        return list(lines[:1])
    more = len(lines) - (room - 1)
    return [*lines[: room - 1], Text(f"  {page.signs.ellipsis} {more:,} more", style="dim")]
