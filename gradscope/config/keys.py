"""The keys of `[tool.gradscope]`, what their values may be, and what holds without them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from gradscope.check.options import BaselineOptions, Policy
from gradscope.config import values
from gradscope.config.formats import OutputFormat
from gradscope.config.values import Check, Value
from gradscope.recording.finding import Severity
from gradscope.recording.stored_gradient import KeepMode
from gradscope.target.options import Mode, TargetOptions, Trial

_POLICY, _BASELINE, _OPTIONS, _TRIAL = Policy(), BaselineOptions(), TargetOptions(), Trial()


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key with one value."""

    check: Check
    default: Value | None = None
    """None where nothing holds without it."""


SELECTION: Mapping[str, Key] = {
    "select": Key(check=values.selectors, default=()),
    "ignore": Key(check=values.selectors, default=()),
    "extend-select": Key(check=values.selectors, default=()),
}
"""Keys that select rules."""

GATE: Mapping[str, Key] = {
    "fail-level": Key(check=values.choice(*get_args(Severity)), default=_POLICY.fail_level),
    "max-warnings": Key(check=values.whole_number(0), default=_POLICY.max_warnings),
    "max-grad-norm": Key(check=values.number(0)),
    "min-grad-norm": Key(check=values.number(0)),
    "baseline": Key(check=values.text),
    "baseline-tolerance": Key(check=values.number(1), default=_BASELINE.tolerance),
    "strict-baseline": Key(check=values.flag, default=_BASELINE.is_strict),
    "output-format": Key(check=values.choice(*get_args(OutputFormat))),
}
"""What makes a check fail, and how it tells."""

RUNNING: Mapping[str, Key] = {
    "seeds": Key(check=values.whole_number(1), default=1),
    "seed": Key(check=values.whole_number(-values.LARGEST), default=_OPTIONS.seed),
    "steps": Key(check=values.whole_number(0), default=_TRIAL.steps),
    "optimizer": Key(check=values.optimizer, default=_TRIAL.optimizer),
    "lr": Key(check=values.number(0), default=_TRIAL.lr),
    "probe-steps": Key(check=values.whole_number(0), default=_TRIAL.probe_steps),
    "micro-batches": Key(check=values.whole_number(2)),
    "keep-gradients": Key(check=values.choice(*get_args(KeepMode)), default=_TRIAL.keep_gradients),
    "timeout": Key(check=values.seconds),
    "device": Key(check=values.device, default=_OPTIONS.device),
    "dtype": Key(check=values.floating_type, default=_OPTIONS.dtype),
    "mode": Key(check=values.choice(*get_args(Mode)), default=_OPTIONS.mode),
    "eager": Key(check=values.flag, default=_OPTIONS.eager),
}
"""Keys that say how targets run, for all targets or in the table of one."""

LOADING: Mapping[str, Key] = {
    "target": Key(check=values.target),
    "model": Key(check=values.expression),
    "batch": Key(check=values.text),
    "input": Key(check=values.inputs),
    "loss": Key(check=values.loss),
    "grad-output": Key(check=values.text),
    "checkpoint": Key(check=values.text),
    "args": Key(check=values.texts),
}
"""Keys that say how one target is loaded."""

TOP_LEVEL: Mapping[str, Key] = {**SELECTION, **GATE, **RUNNING}
OF_TARGET: Mapping[str, Key] = {**LOADING, **RUNNING}

RULES, MODULES, NORMS, TARGETS = "rules", "per-module-ignores", "grad-norms", "targets"
SUBTABLES = (RULES, MODULES, NORMS, TARGETS)

EXCLUSIVE = (("batch", "input"), ("loss", "grad-output"))
"""Pairs of keys that exclude each other."""

_FIELDS = {
    "input": "inputs",
    "baseline": "file",
    "baseline-tolerance": "tolerance",
    "strict-baseline": "is_strict",
}
"""What keys are called in the dataclasses, where it is not the same."""


def arguments(kind: type, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return those of the values that are fields of a dataclass, by the fields' names."""
    named = {_FIELDS.get(key, key.replace("-", "_")): value for key, value in given.items()}
    return {
        field.name: named[field.name] for field in dataclasses.fields(kind) if field.name in named
    }
