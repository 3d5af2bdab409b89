"""The text on the vertices, boxes and links of a drawing, and how wide it is drawn."""

from typing import Literal
from unicodedata import east_asian_width

from gradscope.analysis.folding import Span
from gradscope.analysis.rows import ModuleRow
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, printable
from gradscope.recording.records import Reach
from gradscope.report.graph.vertices import Box, Link, Vertex
from gradscope.report.number_format import figure, operation_text, span_figure
from gradscope.report.page import UNICODE

State = Literal["gradient", "zero", "non-finite", "none", "frozen", "unknown"]
"""State of a parameter after backward, or of the gradient along a link."""

LONGEST = 36
"""Maximum number of characters of a drawn name; the tooltip has all of it."""


def vertex_label(vertex: Vertex) -> str:
    """Return the text of a vertex in one line: name, norm of a parameter's gradient, size."""
    text = vertex_text(vertex, is_short=vertex.box is not None)
    return ", ".join(line for line in text if line)


def vertex_text(vertex: Vertex, *, is_short: bool = False) -> tuple[str, str]:
    """Return the description of a vertex.

    Args:
        vertex: The vertex.
        is_short: Whether its surroundings are drawn around it, so that its name need not tell them.
    """
    name = vertex.name if is_short and vertex.name else vertex.label
    match vertex.kind:
        case "operation" | "view" | "leaf":
            return (_titled(operation_text(name), "", vertex.copies), "")
        case "parameter":
            return (name, fate(vertex))
        case "module":
            return (_titled(name, vertex.class_name, vertex.copies), _size(vertex))
        case _:
            return (name, vertex.detail)


def box_title(box: Box) -> str:
    """Return name, class, and number of copies."""
    return _titled(box.name, box.class_name, box.copies)


def _titled(name: str, class_name: str, copies: int) -> str:
    # A loss without a name is named after its class.
    title = name if name == class_name else f"{name} {class_name}".strip()
    return title if copies == 1 else f"{title} {UNICODE.times}{copies}"


def _size(vertex: Vertex) -> str:
    return fate(vertex) if vertex.reach is not None else counted(len(vertex.nodes), "node")


def fate(vertex: Vertex) -> str:
    """Return `gradient 0.12`, or the reason why a parameter, or those of a module, have none."""
    if vertex.norms is not None:
        return f"gradient {norms_text(vertex.norms)}"
    parts = {"frozen": "frozen", "unknown": "not measured"}
    return parts.get(vertex.reach or "", "no gradient")


def link_label(link: Link) -> str:
    """Return the norm, and the number of tensors in it if there are several."""
    if link.kind == "cut":
        return "cut"
    norm = norms_text(link.norms)
    return norm if link.tensors == 1 else f"{norm} ({link.tensors} tensors)"


def norms_text(norms: Span | None) -> str:
    """Return three digits of a norm; of copies the range."""
    return span_figure(norms)


def exact_norms(norms: Span | None) -> str:
    """Return every digit of a norm; of copies the range."""
    if norms is None:
        return "not measured"
    low, high = exact(norms.low), exact(norms.high)
    return low if low == high else f"{low} to {high}"


def exact(value: float) -> str:
    """Return a number that reads back as the same."""
    # `repr` gives `nan` and `inf`, which reports spell in another way.
    return figure(value) if value != value or abs(value) == float("inf") else repr(value)


def module_reach(row: ModuleRow) -> Reach | None:
    """Return the state of a module's parameters without a gradient; None if it has none."""
    if not row.parameters:
        return None
    return "none" if row.trainable_parameters else "frozen"


def vertex_state(vertex: Vertex) -> State | None:
    """Return the state of a parameter or a module's parameters after backward; None without any."""
    if vertex.norms is not None:
        return state_of(vertex.norms)
    if vertex.reach is None:
        return None
    return vertex.reach if vertex.reach in ("frozen", "unknown") else "none"


def state_of(norms: Span | None) -> State:
    """Return the state of a range of norms; copies that differ are not drawn as one."""
    if norms is None:
        return "unknown"
    if norms.high != norms.high or norms.high == float("inf"):
        return "non-finite"
    return "zero" if norms.high == 0.0 else "gradient"


def below(path: str, around: str) -> str:
    """Return a module's path relative to a module around it."""
    return path.removeprefix(f"{around}.") if around else path


def shortened(name: str, longest: int = LONGEST) -> str:
    """Return a name without characters that break a line; a long one loses its middle."""
    shown = printable(name)
    if len(shown) <= longest:
        return shown
    head = longest // 2 - 1
    return f"{shown[:head]}…{shown[len(shown) - (longest - head - 1) :]}"


def link_state(link: Link) -> State:
    """Return what backward brings along a link."""
    return "none" if link.kind == "cut" else state_of(link.norms)


_NARROW = frozenset("iIjl.,:;|!'`()[]{}ft-/\\ r")
_WIDE = frozenset("mwMW@%…✂")
_SLACK = 1.06
"""Factor for different fonts: no text may be wider than its frame."""


def text_width(text: str, size: float) -> float:
    """Return the approximate width in pixels of a line in a common sans-serif font of this size."""
    return _SLACK * size * sum(_em(sign) for sign in text)


def _em(sign: str) -> float:
    if sign in _NARROW:
        return 0.34
    if sign in _WIDE:
        return 0.9
    if sign.isupper():
        return 0.68
    return 1.0 if not sign.isascii() and east_asian_width(sign) in "WFA" else 0.57


FONT = 12.0
SMALL_FONT = 10.5
PADDING = 9.0
LINE = 15.0

BOX_TITLE = 24.0
"""Height of a box's title."""
BOX_SIDE = 12.0
BOX_FOOT = 8.0
TITLE_GAP = 10.0
LONGEST_TITLE = 44
"""Maximum number of characters of a drawn box title."""

_FIGURE = text_width("0.00e-00", SMALL_FONT)
"""Width reserved for any norm, so that equal modules are drawn equally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Text on a vertex."""

    name: str
    detail: str
    """Secondary text after the name of a parameter, below other names; may be empty."""
    figure: str
    """Gradient norm of a parameter, or the reason why it has none."""


def writing(vertex: Vertex) -> Writing:
    """Return the text on a vertex."""
    if vertex.kind == "parameter":
        known = norms_text(vertex.norms) if vertex.norms is not None else fate(vertex)
        name = shortened(vertex.name or vertex.label, 28)
        # Nearly all parameters of a model have one dtype.
        dims = vertex.detail[vertex.detail.find("[") :]
        return Writing(name=name, detail=shortened(dims, 20), figure=known)
    name, detail = vertex_text(vertex, is_short=True)
    return Writing(name=shortened(name), detail=shortened(detail), figure="")


def vertex_size(vertex: Vertex) -> tuple[float, float]:
    """Return width and height."""
    words = writing(vertex)
    name = text_width(words.name, FONT)
    detail = text_width(words.detail, SMALL_FONT)
    if vertex.kind == "parameter":
        figure = max(text_width(words.figure, SMALL_FONT), _FIGURE)
        inner = sum(width + 7.0 for width in (name, detail, figure) if width) - 7.0
        return (inner + 2 * PADDING, LINE + 3.0)
    if vertex.kind == "module":
        detail = max(detail, text_width("gradient ", SMALL_FONT) + _FIGURE)
    lines = 1 + bool(words.detail)
    height = lines * LINE + (9.0 if vertex.kind != "outside" else 4.0)
    return (max(name, detail) + 2 * PADDING + 4.0, height)


def box_writing(box: Box) -> Writing:
    """Return the text on a box."""
    norms = norms_text(box.norms) if box.copies > 1 and box.norms is not None else ""
    name = shortened(box_title(box), LONGEST_TITLE)
    return Writing(name=name, detail=f"gradient {norms}" if norms else "", figure="")


def title_width(box: Box) -> float:
    """Return the least width of a box, that its title has room."""
    words = box_writing(box)
    name, detail = text_width(words.name, FONT), text_width(words.detail, SMALL_FONT)
    return name + (detail + TITLE_GAP if detail else 0.0) + 2 * BOX_SIDE


def vertex_title(vertex: Vertex) -> str:
    """Return the whole name of a vertex, its exact norm, and the line that made it."""
    lines = [f"{vertex.label} {vertex.class_name}".strip()]
    if vertex.kind not in ("cut", "outside"):
        lines.append(vertex.detail)
    if vertex.kind == "module" and vertex.nodes:
        lines.append(counted(len(vertex.nodes), "node"))
    lines.append(_gradient(vertex))
    if vertex.copies > 1:
        lines.append(f"drawn once for {vertex.copies:,} copies")
    if vertex.is_behind_cut:
        lines.append("cut off from the loss")
    lines.append(vertex.position)
    return "\n".join(printable(line) for line in lines if line)


def _gradient(vertex: Vertex) -> str:
    if vertex.norms is not None:
        return f"gradient norm {exact_norms(vertex.norms)}"
    parts = {"frozen": "frozen", "unknown": "gradient not measured", "none": "no gradient"}
    return parts.get(vertex_state(vertex) or "", "")


def box_text(box: Box) -> str:
    """Return the whole title of a box, and the exact norm of its parameters' gradients."""
    lines = [box_title(box)]
    if box.copies > 1:
        lines.append(f"{box.copies:,} copies, drawn once")
    if box.norms is not None:
        lines.append(f"gradient norm of the parameters {exact_norms(box.norms)}")
    return "\n".join(printable(line) for line in lines)


def link_title(link: Link, source: Vertex, target: Vertex) -> str:
    """Return source and target of a link, and the exact norm of the gradient along it."""
    ends = f"{printable(source.label)} → {printable(target.label)}"
    if link.kind == "cut":
        return f"{ends}\ncut off: no gradient flows here"
    lines = [ends, f"gradient norm {exact_norms(link.norms)}"]
    if link.tensors > 1:
        lines.append(f"total of {link.tensors:,} tensors")
    if link.kind == "next":
        lines.append("to the next copy" if link.box is not None else "to a later turn of the loop")
    return "\n".join(lines)
