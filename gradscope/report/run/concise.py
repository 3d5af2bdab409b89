"""The lines of a concise report that only a training run has; in ASCII, for any editor and grep."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun
from gradscope.phrasing import counted
from gradscope.report.finding_words import verdict_text
from gradscope.report.page import ASCII
from gradscope.report.run.words import (
    heading,
    of_each_optimizer,
    picture_text,
    run_words,
)

_SHOWN = 5


def picture_lines(run: TrainingRun) -> Iterator[str]:
    """Yield the steps' pictures, a line each, with how many steps look so."""
    for place, drawn in of_each_optimizer(run):
        of = heading(run, place)
        for picture in drawn[:_SHOWN]:
            first = "" if picture.is_typical else f", first {picture.first:,}"
            count = "" if place is None else f" ({counted(picture.count, 'step')}{first})"
            yield f"{of}: {picture_text(picture, ASCII)}{count}"
        if (more := len(drawn) - _SHOWN) > 0:
            yield f"{of}: {counted(more, 'more picture')}"


def run_line(report: Report, run: TrainingRun) -> str:
    """Return the verdict, and how the run went."""
    words = [counted(report.summary.parameters, "parameter"), *run_words(run, ASCII)]
    verdict = verdict_text(report)
    return f"{f'{verdict} ' if verdict else ''}{', '.join(words)}."
