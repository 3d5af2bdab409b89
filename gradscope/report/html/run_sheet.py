"""The sheet of a training run: its curves, its layers over the steps, and what led to a step."""

from dataclasses import replace

from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun
from gradscope.report.html.module_columns import module_columns
from gradscope.report.html.picture import Picture, Sheet
from gradscope.report.html.pictures.curves import curve_picture
from gradscope.report.html.pictures.heatmap import heatmap
from gradscope.report.html.pictures.module_map import module_map
from gradscope.report.html.pictures.timeline import timeline
from gradscope.report.html.run_table import run_parameter_table
from gradscope.report.html.words import words_of


def run_sheet(report: Report, run: TrainingRun, title: str) -> Sheet:
    """Return the sheet of a run."""
    pictures = (
        curve_picture(report, run),
        heatmap(report),
        timeline(report, run),
        _last_map(report),
        run_parameter_table(report),
    )
    return Sheet(
        title=title,
        words=words_of(report),
        pictures=tuple(picture for picture in pictures if isinstance(picture, Picture)),
        modules=module_columns(report),
    )


def _last_map(report: Report) -> Picture | None:
    found = module_map(report)
    if found is None:
        return None
    return replace(found, caption=f"Gradients as they were measured last. {found.caption}")
