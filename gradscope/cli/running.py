"""Loads a target and runs it under watch."""

import shlex
import sys
import warnings
from typing import TYPE_CHECKING

import typer

from gradscope.cli.errors import show_error, show_note
from gradscope.errors import ExitCode
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings

if TYPE_CHECKING:
    from gradscope.report.model import Report
    from gradscope.target.options import TargetOptions, Trial


def run_target(
    target: str,
    chosen: "TargetOptions",
    trial: "Trial",
    *,
    settings: Settings = DEFAULT_SETTINGS,
) -> "Report":
    """Load a target, tell what was decided for the user, run it, and report on it."""
    # torch takes more than a second to import: recordings and --help must not pay for it.
    with warnings.catch_warnings():
        # It needs no numpy, and says so where there is none.
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch  # noqa: F401
    from gradscope.api import inspect_target
    from gradscope.capture.definitions import watch_definitions
    from gradscope.target.loading import load_target

    with watch_definitions() as definitions:
        loaded = load_target(target, chosen)
    for note in loaded.notes:
        show_note(note)
    return inspect_target(
        loaded,
        probe_steps=trial.probe_steps,
        eager=chosen.eager,
        command=shlex.join(["gradscope", *sys.argv[1:]]),
        definitions=definitions,
        settings=settings,
        tell=show_error,
    )


def exit_if_broken(report: "Report") -> None:
    """End the command where autograd ended the step: the report tells why, and judges nothing.

    Raises:
        typer.Exit: It did.
    """
    from gradscope.recording.evidence.autograd_error import AutogradErrorRecord

    errors = report.recording.evidence_of(AutogradErrorRecord)
    if any(error.step == 0 for error in errors):
        raise typer.Exit(ExitCode.CANNOT_JUDGE)
