"""Records with any content that their fields allow."""

import dataclasses
import types
from typing import Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.evidence.summaries import StepSummary
from gradscope.recording.origin import TargetRecord
from gradscope.recording.records import (
    CapturedStep,
    ParameterStat,
    Recording,
    Shape,
)

# Any text but for halves of surrogate pairs, which UTF-8 cannot hold.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | st.sampled_from(
    ["", "NaN", "None", "null", "'; DROP TABLE x; --", "a\0b", "?", "1:2"]
)
SCALARS = {
    int: st.integers(-(2**62), 2**62),
    float: st.floats(),
    bool: st.booleans(),
    str: TEXTS,
    bytes: st.binary(max_size=16),
    type(None): st.none(),
    Shape: st.builds(
        Shape,
        dims=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
        dtype=st.sampled_from(["float32", "bfloat16", "float8_e4m3fn"]),
    ),
}


_INDEPENDENT = tuple(kind for kind in EVIDENCE if kind is not StepSummary)
"""Evidence that says nothing on other records: steps beside summaries are read in their order."""


def values(hint):
    """Return a strategy for what a field's annotation allows."""
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*(values(option) for option in get_args(hint)))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return st.lists(values(first), max_size=3).map(tuple)
        return st.tuples(*map(values, (first, *rest)))
    assert dataclasses.is_dataclass(hint), f"{hint} is no type for evidence"
    hints = get_type_hints(hint)
    return st.builds(
        hint, **{field.name: values(hints[field.name]) for field in dataclasses.fields(hint)}
    )


def least(kind):
    """Return a record with the least that each field allows."""
    hints = get_type_hints(kind)
    return kind(**{field.name: _least_of(hints[field.name]) for field in dataclasses.fields(kind)})


def _least_of(hint):
    if type(None) in get_args(hint):
        return None
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is tuple:
        return ()
    if hint is Shape:
        return Shape(dims=(), dtype="float32")
    return least(hint) if dataclasses.is_dataclass(hint) else hint()


def recordings(captured_steps):
    """Return a strategy for recordings with captured steps, but no stored gradients or batches."""
    hints = get_type_hints(Recording)
    hints["parameter_stats"] = tuple[ParameterStat, ...]
    # Fields that are not compared are derived when a file is read.
    derived = {one.name for one in dataclasses.fields(Recording) if not one.compare}
    apart = {"evidence", "captured_steps", "stored_gradients", "kept_batches"} | derived
    parts = {name: values(hints[name]) for name in hints if name not in apart}
    for name in ("parameters", "modules", "calls", "nodes"):
        parts[name] = parts[name].map(numbered)
    parts["events"] = parts["events"].map(
        lambda events: tuple(
            dataclasses.replace(event, numbers=tuple(dict(event.numbers).items()))
            for event in events
        )
    )
    parts["target"] = st.builds(
        dataclasses.replace, values(TargetRecord), seed=st.none() | st.integers(-(2**63), 2**64 - 1)
    )
    parts["is_outline"] = st.just(False)  # tells how a file was read, and is not in it
    parts["evidence"] = st.lists(st.sampled_from(_INDEPENDENT), unique=True, max_size=3).flatmap(
        lambda kinds: st.tuples(
            *(values(kind) for kind in sorted(kinds, key=EVIDENCE.index) for _ in range(2))
        )
    )
    return st.builds(Recording, **parts, captured_steps=captured_steps)


def numbered(records):
    """Return records whose index is their place."""
    return tuple(
        dataclasses.replace(record, index=position) for position, record in enumerate(records)
    )


def no_run(recording):
    """Return a recording without steps of a run, in which norms alone would be measured."""
    return dataclasses.replace(
        recording, steps=tuple(step for step in recording.steps if step.kind != "run")
    )


INSPECTIONS = recordings(captured_steps=st.just(())).map(no_run)
CAPTURED_STEPS = st.lists(
    st.builds(CapturedStep, step=values(int), order=values(int), recording=INSPECTIONS), max_size=2
).map(tuple)
RECORDINGS = recordings(captured_steps=CAPTURED_STEPS).map(no_run)
