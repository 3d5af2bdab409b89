"""What was found out about parameters: how they were made, frozen, shared and left out."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRecord:
    """An attribute that was set on a parameter or a module, and means nothing to torch."""

    table: ClassVar[str] = "attribute"
    name: str
    """As it was written: `require_grad`."""
    value: bool
    modules: tuple[str, ...]
    """Paths of the modules on which it was set; empty where on parameters."""
    parameters: tuple[int, ...]
    """Those whose `requires_grad` is not the value."""
    sites: tuple[int, ...]
    """The lines that set an attribute of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRecord:
    """A module took the place of another under the same name."""

    table: ClassVar[str] = "replacement"
    module: int
    site: int | None
    """The line that put it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRecord:
    """A line that sets `requires_grad` to False, in a file that makes frozen modules."""

    table: ClassVar[str] = "freeze"
    site: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceRecord:
    """Parameters that were given other values, and whether the loss was another then."""

    table: ClassVar[str] = "influence"
    parameters: tuple[int, ...]
    changes_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialisationRecord:
    """A parameter that a function of `torch.nn.init` filled, not only where its layer was made."""

    table: ClassVar[str] = "initialisation"
    parameter: int
    site: int
    """The line that called it last."""
    function: str
    """As `normal_`."""


LeafOrigin = Literal["attribute", "computed", "input", "forward", "late"]
"""`attribute`: kept by a module of the model under an attribute that torch does not register;
`computed`: an attribute holds what was computed of it once, before the forward;
`input`: part of the batch; `forward`: a parameter made anew in every forward; `late`: a parameter
that the first forward gave to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRecord:
    """A tensor into which backward accumulates a gradient that no `parameters()` gives."""

    table: ClassVar[str] = "leaf"
    node: int
    name: str
    """As Python would reach it from the model: `blocks.0.conv.weight`; from the batch: `batch.0`;
    empty where nothing leads to it."""
    origin: LeafOrigin
    numel: int
    owner: int | None
    """The module that keeps it."""
    attribute: str
    """The attribute of the owner in which it is, empty where there is none."""
    container: str
    """The class of what the attribute holds: `list`, `Tensor`."""
    set_aside: bool
    """Whether it is in a module in eval mode while the owner trains."""
    site: int | None
    """The line that gives it to the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecord:
    """Parameters on which neither the loss nor anything that the model returned depends."""

    table: ClassVar[str] = "dropped"
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRecord:
    """Two parameters that require grad and are different objects."""

    table: ClassVar[str] = "twin"
    first: int
    second: int
    alike: Literal["storage", "values"]
    """Whether they share their memory, or an embedding and an output layer hold equal numbers."""
    site: int | None
    """The line that made them so, where one was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetryRecord:
    """A weight some of whose rows are equal, and get equal gradients; of others there is none."""

    table: ClassVar[str] = "symmetry"
    parameter: int
    rows: int
    """Units: rows of a linear layer, output channels of a convolution."""
    alike: int
    """How many have the weights and the gradient of the first unit that gets one, it included."""
    site: int | None = None
    """The line that fills weights with a constant, where there is only one such line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrawRecord:
    """Parameters that the first draw left without a gradient, and another one did not."""

    table: ClassVar[str] = "redraw"
    draws: int
    """How many other draws were tried."""
    parameters: tuple[int, ...]
