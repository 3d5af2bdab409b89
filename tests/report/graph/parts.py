"""Parts of graphs to be laid out: any vertices in any boxes, linked in any way."""

from hypothesis import strategies as st

from gradscope.analysis.folding import Span
from gradscope.report.graph.vertices import Box, GraphPart, Link, Vertex

KINDS = ("operation", "operation", "parameter", "module", "leaf", "cut")


def vertex(index, kind="operation", box=None, **more):
    values = {"label": f"{kind}{index}", "box": box} | more
    if kind == "parameter":
        values |= {"reach": "gradient", "norms": Span(low=1.0, high=1.0), "detail": "float32[4, 4]"}
    return Vertex(index=index, kind=kind, **values)


def link(source, target, kind="gradient", box=None, norm=0.5):
    norms = None if kind == "cut" else Span(low=norm, high=norm)
    return Link(source=source, target=target, norms=norms, tensors=1, kind=kind, box=box)


def box(index, parent=None, copies=1, name=None):
    return Box(
        index=index,
        parent=parent,
        modules=(index,),
        name=name or f"m{index}",
        class_name="Module",
        copies=copies,
        norms=None,
    )


def part(vertices, links, boxes=()):
    return GraphPart(vertices=tuple(vertices), links=tuple(links), boxes=tuple(boxes))


def around(whole, index):
    """Return the boxes that a box lies in, and itself."""
    found = []
    while index is not None:
        found.append(index)
        index = whole.boxes[index].parent
    return found


@st.composite
def parts(draw, most=14):
    count = draw(st.integers(0, 6))
    boxes = [
        box(
            index,
            draw(st.sampled_from([None, *range(index)])),
            draw(st.sampled_from([1, 1, 3])),
            draw(st.sampled_from(["m", "a long name of a module, longer than what is in it"])),
        )
        for index in range(count)
    ]
    size = draw(st.integers(1, most))
    homes = st.sampled_from([None, *range(count)])
    vertices = [vertex(n, draw(st.sampled_from(KINDS)), draw(homes)) for n in range(size)]
    for label in draw(st.sampled_from([(), ("before", "after"), ("after",)])):
        vertices.append(vertex(len(vertices), "outside", label=label))
    _fill(boxes, vertices)
    whole = part(vertices, [], boxes)
    pairs = draw(
        st.lists(st.tuples(*[st.integers(0, size - 1)] * 2), max_size=2 * size, unique=True)
    )
    links = [_link(draw, whole, *pair) for pair in pairs if pair[0] != pair[1]]
    return part(vertices, links, whole.boxes)


def _fill(boxes, vertices):
    """Put a vertex into each box that holds nothing."""
    whole = part(vertices, [], boxes)
    held = {index for one in vertices for index in around(whole, one.box)}
    for one in reversed(boxes):
        if one.index not in held:
            vertices.append(vertex(len(vertices), box=one.index))
            held.update(around(whole, one.index))


def _link(draw, whole, source, target):
    shared = set(around(whole, whole.vertices[source].box)) & set(
        around(whole, whole.vertices[target].box)
    )
    repeated = sorted(index for index in shared if whole.boxes[index].copies > 1)
    if repeated and draw(st.booleans()):
        return link(source, target, "next", repeated[0])
    own = [
        index
        for index in around(whole, whole.vertices[source].box)
        if index not in around(whole, whole.vertices[target].box)
    ]
    if own and whole.vertices[source].kind == "parameter" and draw(st.booleans()):
        return link(source, target, "cut", own[-1])
    return link(source, target, norm=draw(st.sampled_from([0.0, 1e-3, 0.5, float("nan")])))
