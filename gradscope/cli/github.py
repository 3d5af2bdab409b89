"""What a GitHub runner is told beside the report."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gradscope.check.results import CheckResult
from gradscope.cli.errors import show_note


@contextmanager
def commands_off(*, is_wanted: bool) -> Iterator[None]:
    """Keep the runner from obeying what user code prints: it reads commands from stderr too."""
    if not is_wanted:
        yield
        return
    token = secrets.token_hex(16)
    _write_line(f"::stop-commands::{token}")
    try:
        yield
    finally:
        # On a line of its own, whatever user code left without an end, as progress bars do.
        _write_line(f"\n::{token}::")


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def add_step_summary(result: CheckResult) -> None:
    """Add the report to the summary of the step, where the runner offers one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    from gradscope.report.ci.step_summary import step_summary

    try:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - the runner's own file
            file.write(step_summary(result) + "\n")
    except OSError as error:
        show_note(f"no step summary: cannot write {path!r}: {error.strerror}")
