"""Lines of the forward that cut parameters off from the loss."""

from typing import Literal

from gradscope.frozen import dataclass

CutKind = Literal["detach", "no-grad", "read", "non-differentiable"]
"""How a gradient was cut off. `read`: the values were moved out of torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRecord:
    """A line of the forward that cuts parameters off from the loss."""

    graph: int
    operation: str
    """The call, as `detach`, `argmax`, `data`; `checkpoint` for a reentrant one."""
    kind: CutKind
    site: int | None
    last: int | None
    """Line (a site) of the last operation that still carried the parameters' gradient."""
    parameters: tuple[int, ...]
    """Unreached parameters whose gradient this cut stops."""
    joins: tuple[int, ...]
    """Nodes of the graph with an input from behind the cut; empty if nothing that could be followed
    led to the loss."""
    count: int
    """Number of calls on this line that cut something off."""
    call: int | None = None
    """Innermost module call around it; None outside of all."""
    whole_call: bool = False
    """Whether a whole module was called without gradients; the line is that of its call."""
    taken_out: bool = False
    """Whether values behind it were moved out of torch, where they cannot be followed."""
    comes_back: bool = False
    """Whether the function that moved them out also makes tensors of arrays or numbers."""
    straight_through: bool = False
    """Whether another term passes the gradient on instead, as in `x + (q - x).detach()`."""
    disabled: int | None = None
    """Line (a site) that disabled gradients: a `with` or a decorator."""
