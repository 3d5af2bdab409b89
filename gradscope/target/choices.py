"""Names that a target's options accept, without an import of torch."""

import re
from enum import StrEnum


class LossName(StrEnum):
    """The losses that `--loss` accepts by name."""

    CROSS_ENTROPY = "cross-entropy"
    MSE = "mse"
    MEAN = "mean"
    SUM_SQUARES = "sum-squares"


LOSS_NAMES = tuple(name.value for name in LossName)

FLOATING_TYPES = ("float16", "bfloat16", "float32", "float64", "half", "float", "double")
"""The dtypes of `--dtype`, each an attribute of torch."""

OPTIMIZERS = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam",
    "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
)  # fmt: skip
"""The classes of `torch.optim`; a newer torch may have more."""

_FLOATING_SIZES = {"16": "float16", "32": "float32", "64": "float64"}
_DEVICES = {"gpu": "cuda", "nvidia": "cuda", "metal": "mps", "apple": "mps", "intel": "xpu"}
_NUMBERED = re.compile(r"(?P<kind>cuda|gpu|xpu)[ _.-]?(?P<number>\d+)")

INPUT_TYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "bool", "float", "double", "half", "int",
    "long",
)  # fmt: skip
"""The dtypes of `--input`, each an attribute of torch."""


def meant_type(name: str) -> str | None:
    """Return the floating-point dtype for another common name, as `fp16`; None if there is none."""
    short = re.fullmatch(r"(?:fp|f)(\d+)", name.lower())
    if short is not None:
        return _FLOATING_SIZES.get(short[1])
    return "bfloat16" if name.lower() in ("bf16", "bfp16", "bfloat") else None


def meant_device(name: str) -> str | None:
    """Return the device that an invalid name likely means, as `gpu`; None if there is none."""
    plain = name.strip().lower()
    if (numbered := _NUMBERED.fullmatch(plain)) is not None:
        plain = f"{numbered['kind']}:{numbered['number']}"
    kind, colon, number = plain.partition(":")
    meant = f"{_DEVICES.get(kind, kind)}{colon}{number}"
    return meant if meant != name and re.fullmatch(r"(cuda|xpu|mps|cpu)(:\d+)?", meant) else None
