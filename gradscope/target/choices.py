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
