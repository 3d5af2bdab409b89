"""The names that options of a target may have, without what they mean in torch."""

from enum import StrEnum


class LossName(StrEnum):
    """The losses that `--loss` knows by name."""

    CROSS_ENTROPY = "cross-entropy"
    MSE = "mse"
    MEAN = "mean"
    SUM_SQUARES = "sum-squares"


LOSS_NAMES = tuple(name.value for name in LossName)

FLOATING_TYPES = ("float16", "bfloat16", "float32", "float64", "half", "float", "double")
"""To which `--dtype` converts; each is an attribute of torch."""

INPUT_TYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "bool", "float", "double", "half", "int",
    "long",
)  # fmt: skip
"""Of which `--input` makes tensors, likewise."""
