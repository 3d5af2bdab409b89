"""The keys of `[tool.gradscope]` and where they may stand; their options declare the rest."""

from collections.abc import Mapping

from gradscope.check.options import BaselineOptions, PlannedTarget, Policy
from gradscope.config.formats import FormatOptions
from gradscope.frozen import dataclass
from gradscope.options import checks
from gradscope.options.checks import Check, Value
from gradscope.options.declaration import Declaration, declarations
from gradscope.options.recording_options import RecordingOptions
from gradscope.rules.settings import NormLimit, Settings
from gradscope.target import option_checks
from gradscope.target.options import TargetOptions, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key with one value."""

    check: Check
    default: Value | None = None
    """Value that holds without the key; None for none."""


_DECLARED: Mapping[str, Declaration] = {
    key: declared
    for kind in (
        Settings, Policy, NormLimit, BaselineOptions, FormatOptions, PlannedTarget, TargetOptions,
        Trial, RecordingOptions,
    )
    for key, declared in declarations(kind).items()
}  # fmt: skip


def _keys(*names: str) -> Mapping[str, Key]:
    return {
        name: Key(check=_DECLARED[name].check, default=_DECLARED[name].default)  # type: ignore[arg-type]
        for name in names
    }


SELECTION = _keys("select", "ignore", "extend-select")
"""Keys that select rules."""

CHECK = _keys(
    "fail-level", "max-warnings", "max-grad-norm", "min-grad-norm", "baseline",
    "baseline-tolerance", "strict-baseline", "output-format",
)  # fmt: skip
"""Keys that say when a check fails, and how it is reported."""

RUNNING = _keys(
    "seeds", "seed", "steps", "optimizer", "lr", "probe-steps", "micro-batches", "overfit",
    "keep-gradients", "timeout", "allow-guesses", "device", "dtype", "mode", "eager",
)  # fmt: skip
"""Keys that say how targets run, for all targets or in the table of one."""

RECORDING = _keys("keep", "keep-batches", "sync-checks")
"""Keys of `gradscope run`: what a recording keeps, and the ranks of a distributed job."""

LOADING: Mapping[str, Key] = {
    "target": Key(check=option_checks.target),
    **{
        name: Key(check=_DECLARED[name].check)
        for name in ("model", "batch", "input", "loss", "grad-output", "checkpoint")
    },
    "args": Key(check=checks.texts),
}
"""Keys that say how one target is loaded. Without a key, its file decides."""

TOP_LEVEL: Mapping[str, Key] = {**SELECTION, **CHECK, **RUNNING, **RECORDING}
OF_TARGET: Mapping[str, Key] = {**LOADING, **RUNNING}

RULES, MODULES, NORMS, TARGETS = "rules", "per-module-ignores", "grad-norms", "targets"
SUBTABLES = (RULES, MODULES, NORMS, TARGETS)

EXCLUSIVE = (("batch", "input"), ("loss", "grad-output"))
"""Pairs of keys that exclude each other."""
