"""A small recording, and a comparison of recordings."""

import dataclasses
import math

from gradscope.recording.records import (
    GradientStat,
    ModuleRecord,
    ParameterRecord,
    ParameterStat,
    Shape,
    StepRecord,
)
from gradscope.recording.store import load_recording, save_recording
from tests.records import recording, target


def gradient(norm):
    return GradientStat(
        numel=10,
        norm=norm,
        absolute_maximum=norm,
        zero_share=0.25,
        nonfinite=3,
        sampled=True,
        lowest_exponent=-12,
        magnitudes=(1, 0, 7),
    )


def stat(step, parameter, grad, update_norm=None):
    return ParameterStat(
        step=step,
        parameter=parameter,
        reach="none" if grad is None else "gradient",
        gradient=grad,
        reason="nothing used it" if grad is None else None,
        weight_norm=1.5,
        update_norm=update_norm,
    )


def small():
    """One linear layer."""
    return recording(
        target=target(
            model="Linear", batch="float32[4, 8]", loss="mean", synthetic_loss=True, root="/tmp"
        ),
        modules=(
            ModuleRecord(
                index=0,
                path="",
                aliases=(),
                class_name="Linear",
                parent=None,
                in_model=True,
                training=True,
            ),
        ),
        parameters=(
            ParameterRecord(
                index=0,
                name="weight",
                aliases=("tied.weight",),
                module=0,
                shape=Shape(dims=(4, 8), dtype="float32"),
                device="cpu",
                numel=32,
                requires_grad=True,
                optimizer_group=None,
            ),
        ),
        steps=(StepRecord(index=0, kind="step", graph=0, loss=math.nan, optimizer=None),),
        parameter_stats=(stat(0, 0, gradient(2.0)),),
    )


def with_stats(*stats):
    return dataclasses.replace(small(), parameter_stats=stats)


def same(left, right) -> bool:
    """Return whether two values are equal, NaN with NaN, and None with nothing else."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        fields = [field.name for field in dataclasses.fields(left) if field.compare]
        return all(same(getattr(left, name), getattr(right, name)) for name in fields)
    return left == right


def round_trip(recording, path):
    save_recording(recording, path, force=True)
    return load_recording(path)
