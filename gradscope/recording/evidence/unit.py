"""How many units of a layer were active."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """The units of one layer under an activation that is flat on one side, over all of its calls.

    A unit is a row of the layer's weight: a feature, or a channel of a convolution.
    """

    table: ClassVar[str] = "unit"
    tensors: tuple[TensorRef, ...]
    """The activation's outputs, one for each call."""
    operation: str
    """As torch's dispatcher knows it: `relu`, `clamp_min`."""
    parameters: tuple[int, ...]
    """Of the layer whose outputs the activation takes, as far as they are trained."""
    units: int
    inactive: int
    """Units that lay on the flat side in every row of every call: nothing flows back to them."""
    rows: int
    """Batch times positions, over all calls."""
    samples: int
    """Batch alone, over all calls: rows of one image or sequence are much alike."""
