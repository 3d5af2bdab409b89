"""Inspects files as `gradscope inspect` does, in this process."""

import linecache
import sys
from pathlib import Path

from gradscope.capture.source.definitions import watch_definitions
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings
from gradscope.session.api import inspect_target
from gradscope.target.loading import load_target
from gradscope.target.options import TargetOptions, Trial


def report_of_file(
    path: Path,
    *,
    probe_steps: int = 3,
    trial: Trial | None = None,
    settings: Settings = DEFAULT_SETTINGS,
    **chosen: object,
):
    """Inspect a file as the command does, and forget its module again."""
    before = set(sys.modules)
    # A file that is written twice in a second may look the same to Python's cache of bytecode.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with watch_definitions() as definitions:
            target = load_target(str(path), TargetOptions(**chosen))
        return inspect_target(
            target,
            trial=trial or Trial(probe_steps=probe_steps),
            eager=False,
            command="inspect",
            definitions=definitions,
            settings=settings,
        )
    finally:
        sys.dont_write_bytecode = writes_none
        for name in set(sys.modules) - before:
            if getattr(sys.modules[name], "__file__", None) == str(path):
                del sys.modules[name]
        linecache.checkcache(str(path))


def marked_lines(path: Path, mark: str) -> set[int]:
    """Return the lines of a file that end with a mark, as `# GS201`."""
    lines = path.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.rstrip().endswith(mark)}


def only(findings, code):
    """Return the one finding of a rule."""
    (found,) = [finding for finding in findings if finding.rule == code]
    return found
