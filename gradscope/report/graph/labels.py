"""What stands on the vertices, boxes and links of a drawing."""

from typing import Literal

from gradscope.analysis.folding import Span
from gradscope.analysis.rows import ModuleRow
from gradscope.phrasing import counted, printable
from gradscope.recording.records import Reach
from gradscope.report.figures import figure, span_figure
from gradscope.report.graph.vertices import Box, Link, Vertex
from gradscope.report.names import operation_text
from gradscope.report.page import UNICODE

State = Literal["gradient", "zero", "non-finite", "none", "frozen", "unknown"]
"""What backward left in a parameter, or brought along a link."""

LONGEST = 36
"""Characters of a name that are drawn; the rest is in the tooltip."""


def vertex_label(vertex: Vertex) -> str:
    """Return what stands on a vertex in one line: name, norm of a parameter's gradient, size."""
    words = vertex_words(vertex, is_short=vertex.box is not None)
    return ", ".join(line for line in words if line)


def vertex_words(vertex: Vertex, *, is_short: bool = False) -> tuple[str, str]:
    """Return what stands on a vertex: what it is, and what is known of it.

    Args:
        vertex: The vertex.
        is_short: Whether its surroundings are drawn around it, so that its name need not tell them.
    """
    name = vertex.name if is_short and vertex.name else vertex.label
    match vertex.kind:
        case "operation" | "view" | "leaf":
            return (operation_text(name), "")
        case "parameter":
            return (name, fate(vertex))
        case "module":
            return (_titled(name, vertex.class_name, vertex.copies), _size(vertex))
        case _:
            return (name, vertex.detail)


def box_title(box: Box) -> str:
    """Return name, class, and how often it is there."""
    return _titled(box.name, box.class_name, box.copies)


def _titled(name: str, class_name: str, copies: int) -> str:
    # A loss of no name has that of its class.
    title = name if name == class_name else f"{name} {class_name}".strip()
    return title if copies == 1 else f"{title} {UNICODE.times}{copies}"


def _size(vertex: Vertex) -> str:
    return fate(vertex) if vertex.reach is not None else counted(len(vertex.nodes), "node")


def fate(vertex: Vertex) -> str:
    """Return `gradient 0.12`, or why a parameter has none, or those of a module."""
    if vertex.norms is not None:
        return f"gradient {norms_text(vertex.norms)}"
    words = {"frozen": "frozen", "unknown": "not measured"}
    return words.get(vertex.reach or "", "no gradient")


def link_label(link: Link) -> str:
    """Return the norm, and how many tensors it is the total of where there are several."""
    if link.kind == "cut":
        return "cut"
    norm = norms_text(link.norms)
    return norm if link.tensors == 1 else f"{norm} ({link.tensors} tensors)"


def norms_text(norms: Span | None) -> str:
    """Return three digits of a norm; of copies the range."""
    return span_figure(norms, UNICODE)


def exact_norms(norms: Span | None) -> str:
    """Return every digit of a norm; of copies the range."""
    if norms is None:
        return "not measured"
    low, high = exact(norms.low), exact(norms.high)
    return low if low == high else f"{low} to {high}"


def exact(value: float) -> str:
    """Return a number that reads back as the same."""
    return figure(value, UNICODE) if value != value or abs(value) == float("inf") else repr(value)


def module_reach(row: ModuleRow) -> Reach | None:
    """Return what became of a module's parameters that have no gradient; None where it has none."""
    if not row.parameters:
        return None
    return "none" if row.trainable_parameters else "frozen"


def vertex_state(vertex: Vertex) -> State | None:
    """Return what backward left in a parameter or a module's parameters; None where it has none."""
    if vertex.norms is not None:
        return state_of(vertex.norms)
    if vertex.reach is None:
        return None
    return vertex.reach if vertex.reach in ("frozen", "unknown") else "none"


def state_of(norms: Span | None) -> State:
    """Return what a range of norms says; copies that are not alike are not drawn as one."""
    if norms is None:
        return "unknown"
    if norms.high != norms.high or norms.high == float("inf"):
        return "non-finite"
    return "zero" if norms.high == 0.0 else "gradient"


def below(path: str, around: str) -> str:
    """Return a module's path below that of one around it."""
    return path.removeprefix(f"{around}.") if around else path


def shortened(name: str, longest: int = LONGEST) -> str:
    """Return a name without what would break a line, its middle left out where it is too long."""
    shown = printable(name)
    if len(shown) <= longest:
        return shown
    head = longest // 2 - 1
    return f"{shown[:head]}…{shown[len(shown) - (longest - head - 1) :]}"


def link_state(link: Link) -> State:
    """Return what backward brings along a link."""
    return "none" if link.kind == "cut" else state_of(link.norms)
