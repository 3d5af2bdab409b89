"""The lines that a display shows of a run that goes on, for a page of any size."""

from dataclasses import dataclass

from rich.text import Text

from gradscope.analysis.live_run import LiveRun
from gradscope.analysis.view import shown_site
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding
from gradscope.report.figures import figure
from gradscope.report.finding_words import level_counts
from gradscope.report.live.curve_lines import LineLayout, curve_lines
from gradscope.report.live.layer_lines import layer_lines
from gradscope.report.page import Page
from gradscope.report.run.words import duration
from gradscope.report.text_findings import SEVERITY_STYLES, hanging

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
    is_final: bool = False
    """Whether they judge no more before the end of the run."""


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
    found = [] if judged is None else judged.findings
    # So much is kept for findings that all else leaves out what does not fit.
    kept = 0 if judged is None else 1 + min(len(found), _FINDINGS)
    layout = LineLayout.of(page)
    lines += curve_lines(run, layout, page, max(room - kept, 1))
    layers = height - len(lines) - kept
    if layers >= _LAYERS_LEAST:
        lines += layer_lines(run.layers, layout, page, min(layers, _LAYERS_MOST))
    if judged is not None:
        lines += _findings(judged, page, height - len(lines))
    for line in lines:
        line.truncate(page.width, overflow="crop")
    return lines[: max(height, 0)]


def _header(run: LiveRun, planned: int | None, page: Page) -> Text:
    """Return `gradscope run train.py · 1,204 steps · 83.3 steps/s · 1 min 12 s`, and a rule."""
    words = _progress(run, planned, page) or ["waits for the first step of an optimizer"]
    title = Text().append_text(page.text(run.name, "bold"))
    for place, word in enumerate(words):
        room = page.width - title.cell_len - len(page.signs.separator)
        if place and len(word) > room:
            break
        title.append(page.signs.separator, "dim").append(word)
    program = Text().append("gradscope run ", "bold cyan")
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


def _findings(judged: Judged, page: Page, room: int) -> list[Text]:
    """Return how many findings there are, and as many of them as fit, as long as they may be."""
    after = f"  after {counted(judged.steps, 'step')}"
    if judged.is_final:
        after += "; the next time at the end, it takes long"
    found = judged.findings
    if not found:
        return [Text("no findings", style="bold green").append(after, "not bold dim")]
    head = Text(", ".join(level_counts(found)), SEVERITY_STYLES[found[0].severity])
    head.append(after, "not bold default dim")
    shown = found if len(found) < room else found[: max(room - 2, 0)]
    each = max((room - 1) // max(len(found), 1), 1)
    lines = [head, *(line for one in shown for line in _finding(one, page, each))]
    if more := len(found) - len(shown):
        lines.append(Text(f"  {page.signs.ellipsis} {more:,} more", style="dim"))
    return lines


def _finding(finding: Finding, page: Page, most: int) -> list[Text]:
    """Return `error[GS301] train.py:10 missing-zero-grad: backward() adds to…` in a few lines."""
    level = f"{finding.severity}[{finding.rule}]"
    place = page.spell(shown_site(finding.location, page.root))
    head = " ".join(filter(None, (level, place, f"{finding.name}:")))
    text = hanging(
        page.spell(f"{head} {' '.join(finding.message.split())}"), page, indent=2, further=2
    )
    text.stylize("bold", 2, 2 + len(head))
    text.stylize(SEVERITY_STYLES[finding.severity], 2, 2 + len(level))
    lines = list(text.split())
    if len(lines) > most:
        last, end = lines[most - 1], page.signs.ellipsis
        last.truncate(page.width - len(end))
        last.append(end)
    return lines[:most]
