"""Limits that hold for nothing, as after a slip in a module's name."""

from collections.abc import Iterable

from gradscope.check.results import TargetResult
from gradscope.rules.patterns import matches
from gradscope.rules.settings import WHOLE_MODEL, Settings


def unmatched_limits(settings: Settings, targets: Iterable[TargetResult]) -> tuple[str, ...]:
    """Return the patterns of limits that match no module of any target that was run."""
    paths = {
        module.path
        for target in targets
        for run in target.runs
        for module in run.recording.modules
        if module.path
    }
    return tuple(
        pattern
        for pattern in settings.norm_limits
        if paths and pattern != WHOLE_MODEL and not any(matches(path, pattern) for path in paths)
    )
