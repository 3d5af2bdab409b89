"""What a drawing of a graph is made of, before it is laid out."""

from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.folding import Span
from gradscope.phrasing import counted
from gradscope.recording.finding import Severity
from gradscope.recording.records import Reach

VertexKind = Literal["operation", "view", "parameter", "leaf", "module", "outside", "cut", "rest"]
"""`outside` is what lies beyond the chosen module, `module` one whose inside is folded, `cut` a
line that cuts a gradient off, `rest` what there was no room for."""

LinkKind = Literal["gradient", "next", "cut"]
"""`gradient`: tensors of the forward, along which backward comes back. `next`: likewise from one
copy of a repeated module to the next. `cut`: a way of the forward that backward does not come
back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """An operation, a parameter, a cut, or a module with all that is in it."""

    index: int
    kind: VertexKind
    label: str
    """The operation as autograd names it, or a name that may hold any character."""
    name: str = ""
    """What it is called in the box that it is drawn in; empty where that is the label."""
    module: int | None = None
    """The module that it is drawn in."""
    box: int | None = None
    """The box that it is drawn in."""
    nodes: tuple[int, ...] = ()
    """The recording's nodes that it stands for; none where backward does not lead to it."""
    modules: tuple[int, ...] = ()
    """Of a module: those that it stands for."""
    parameters: tuple[int, ...] = ()
    """Of a parameter: those that it stands for."""
    copies: int = 1
    class_name: str = ""
    """Of a module."""
    detail: str = ""
    """The shape of a parameter or of what an operation makes, the line of a cut."""
    place: str = ""
    """The line that made it, as `file:line`; empty where it is not known."""
    norms: Span | None = None
    """Of the gradients of a parameter, or of all parameters in a module; the range over copies."""
    reach: Reach | Literal["unknown"] | None = None
    """Of a parameter; of a module that has some and got no gradient, why."""
    is_behind_cut: bool = False
    severity: Severity | None = None
    """Of the worst finding about it."""

    @property
    def grad_norm(self) -> float | None:
        """The norm of the gradient; the largest of several copies."""
        return None if self.norms is None else self.norms.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Tensors from one vertex to another, in the direction of the forward."""

    source: int
    target: int
    norms: Span | None
    """Total norm of the gradients with respect to them, over all their uses; the range over
    copies."""
    tensors: int
    kind: LinkKind = "gradient"
    box: int | None = None
    """Of a `next` link: the box that stands for the copies. Of a cut: the box that is cut off as a
    whole, in which the source is one of many."""

    @property
    def grad_norm(self) -> float | None:
        """The norm of the gradient; the largest of several copies."""
        return None if self.norms is None else self.norms.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A module that is drawn open, or several that are alike."""

    index: int
    parent: int | None
    """The box that it lies in."""
    modules: tuple[int, ...]
    """Those that it stands for; none where it holds a pattern of siblings that repeats."""
    name: str
    """Below the box around it: `h.0`; of copies `h.0 … h.11`."""
    class_name: str
    copies: int
    norms: Span | None
    """Total norm of the parameters' gradients."""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """What is drawn."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    boxes: tuple[Box, ...] = ()
    """Outermost first."""
    folded_nodes: int = 0
    folded_modules: int = 0

    @property
    def folded(self) -> str | None:
        """What was folded, in words; None for nothing."""
        if not self.folded_nodes:
            return None
        nodes = counted(self.folded_nodes, "node")
        return f"… {nodes} folded into {counted(self.folded_modules, 'module')}"
