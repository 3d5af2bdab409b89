"""What is told of the parts of a drawing where the pointer rests."""

from gradscope.phrasing import counted, printable
from gradscope.report.graph.labels import box_title, exact_norms, vertex_state
from gradscope.report.graph.vertices import Box, Link, Vertex


def vertex_title(vertex: Vertex) -> str:
    """Return the whole name of a vertex, its exact norm, and the line that made it."""
    lines = [f"{vertex.label} {vertex.class_name}".strip()]
    if vertex.kind not in ("cut", "outside"):
        lines.append(vertex.detail)
    if vertex.kind == "module" and vertex.nodes:
        lines.append(counted(len(vertex.nodes), "node"))
    lines.append(_gradient(vertex))
    if vertex.copies > 1:
        lines.append(f"drawn once for {vertex.copies:,}")
    if vertex.is_behind_cut:
        lines.append("cut off from the loss")
    lines.append(vertex.place)
    return "\n".join(printable(line) for line in lines if line)


def _gradient(vertex: Vertex) -> str:
    if vertex.norms is not None:
        return f"gradient norm {exact_norms(vertex.norms)}"
    words = {"frozen": "frozen", "unknown": "gradient not measured", "none": "no gradient"}
    return words.get(vertex_state(vertex) or "", "")


def box_words(box: Box) -> str:
    """Return the whole title of a box, and the exact norm of its parameters' gradients."""
    lines = [box_title(box)]
    if box.copies > 1:
        lines.append(f"{box.copies:,} that are alike, drawn once")
    if box.norms is not None:
        lines.append(f"gradient norm of the parameters {exact_norms(box.norms)}")
    return "\n".join(printable(line) for line in lines)


def link_title(link: Link, source: Vertex, target: Vertex) -> str:
    """Return what a link leads from and to, and the exact norm of the gradient along it."""
    ends = f"{printable(source.label)} → {printable(target.label)}"
    if link.kind == "cut":
        return f"{ends}\nno gradient comes back here: it is cut off"
    lines = [ends, f"gradient norm {exact_norms(link.norms)}"]
    if link.tensors > 1:
        lines.append(f"total of {link.tensors:,} tensors")
    if link.kind == "next":
        lines.append("to the next copy")
    return "\n".join(lines)
