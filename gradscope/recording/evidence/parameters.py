"""Evidence on parameters: how they were made, frozen, shared and excluded."""

from typing import ClassVar, Literal

from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRecord:
    """An attribute, set on a parameter or a module, that means nothing to torch."""

    table: ClassVar[str] = "attribute"
    name: str
    """Name as written: `require_grad`."""
    value: bool
    modules: tuple[str, ...]
    """Paths of the modules on which it was set; empty if it was set on parameters."""
    parameters: tuple[int, ...]
    """Parameters whose `requires_grad` differs from the value."""
    sites: tuple[int, ...]
    """Lines that set an attribute of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRecord:
    """A module replaced another one under the same name."""

    table: ClassVar[str] = "replacement"
    module: int
    site: int | None
    """Line that replaced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRecord:
    """A module that got its weights from a state dict or a pretrained model."""

    table: ClassVar[str] = "loaded"
    module: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRecord:
    """A line that sets `requires_grad` to False, in a file that makes frozen modules."""

    table: ClassVar[str] = "freeze"
    site: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CastRecord:
    """A line that names a short type, in a file that makes parameters of this type."""

    table: ClassVar[str] = "cast"
    site: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UncalledUpdateRecord:
    """What should update a copy of a network, and is not used."""

    table: ClassVar[str] = "uncalled_update"
    site: int
    name: str
    """Name of a function that nothing calls, or of a number that nothing reads."""
    is_rate: bool = False
    """Whether it is such a number, as a decay or an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyUnfrozenRecord:
    """A function that freezes a module, uses it, and unfreezes only a part of it."""

    table: ClassVar[str] = "partly_unfrozen"
    frozen: int
    """Line (a site) that freezes the whole."""
    unfrozen: int
    """Line that unfreezes the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerRecord:
    """The caller of the function that made a module after some optimizer was made."""

    table: ClassVar[str] = "caller"
    module: int
    site: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceRecord:
    """Parameters that were changed, and whether the loss changed."""

    table: ClassVar[str] = "influence"
    parameters: tuple[int, ...]
    changes_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialisationRecord:
    """A parameter that `torch.nn.init` filled again after its layer was made."""

    table: ClassVar[str] = "initialisation"
    parameter: int
    site: int
    """Line of the last call."""
    function: str
    """Name, as `normal_`."""


LeafOrigin = Literal["attribute", "computed", "input", "forward", "late", "script"]
"""`attribute`: stored by a module under an attribute that torch does not register; `computed`: an
attribute stores a result computed from it before the forward; `input`: part of the batch;
`forward`: a parameter made anew in every forward; `late`: a parameter that the first forward added
to the model; `script`: constants that a script makes before its loop, and holds itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRecord:
    """A leaf that accumulates a gradient and is not in `parameters()`."""

    table: ClassVar[str] = "leaf"
    node: int
    name: str
    """Python name, from the model: `blocks.0.conv.weight`; from the batch: `batch.0`; empty if none
    leads to it."""
    origin: LeafOrigin
    numel: int
    owner: int | None
    """Module that stores it."""
    attribute: str
    """Attribute of the owner that contains it, empty if there is none."""
    container: str
    """Class of the attribute's value: `list`, `Tensor`."""
    set_aside: bool
    """Whether it is in a module in eval mode while the owner trains."""
    site: int | None
    """Line that gives it to the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecord:
    """Parameters that neither the loss nor the model's output depends on."""

    table: ClassVar[str] = "dropped"
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadModuleRecord:
    """A module that its owner's class assigns to an attribute, and that no code reads."""

    table: ClassVar[str] = "unread_module"
    module: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwrittenRecord:
    """An assignment whose value no path reads: the next one to the same name replaces it."""

    table: ClassVar[str] = "overwritten"
    name: str
    """Name of the variable."""
    file: str
    """Path, as in the recording's sites."""
    first: int
    """Number of the assignment's first line, counted from 1."""
    last: int
    site: int
    """Line that replaces the value; the assignment's own in a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRecord:
    """Two parameters that are different objects."""

    table: ClassVar[str] = "twin"
    first: int
    second: int
    alike: Literal["storage", "values", "target", "modules", "replaced"]
    """Whether they share memory, or an embedding and an output layer have equal values; both have a
    gradient. `target`: they share memory, and only the first one has a gradient. `modules`: they
    are the first of two modules beside each other whose parameters are all equal. `replaced`: the
    first is of an embedding that took the place of one to which an output layer is tied."""
    site: int | None
    """Line that made them so, if one was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetryRecord:
    """A weight with equal rows that have equal gradients; not recorded for other weights."""

    table: ClassVar[str] = "symmetry"
    parameter: int
    rows: int
    """Number of units: rows of a linear layer, output channels of a convolution."""
    alike: int
    """Number of units with the weights and the gradient of the first unit that has a gradient."""
    site: int | None = None
    """Line that fills weights with a constant, if there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrawRecord:
    """Parameters without a gradient in the first draw, and with one in another draw."""

    table: ClassVar[str] = "redraw"
    draws: int
    """Number of other draws tried."""
    parameters: tuple[int, ...]
