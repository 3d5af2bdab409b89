"""Drawings as columns of JSON, from which JavaScript draws them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gradscope.report.graph.drawing import Drawing, Figure, Frame, PlacedLink, PlacedVertex
from gradscope.report.graph.labels import link_state, vertex_state, writing
from gradscope.report.graph.vertices import Vertex
from gradscope.report.html.columns import Json, numbers, positions, single_numbers, texts


def drawing_columns(drawings: Mapping[int, Drawing], tensors: Mapping[int, int]) -> dict[str, Json]:
    """Return drawings without boxes as tables of columns.

    - `drawings`, a row a drawing: `module` (null: the whole graph), `layout`, and the first of its
      rows in `vertices` and in `links`, both as `vertex` and `link`; the last row is an end mark.
    - `layouts`, a row for each way in which things are placed, which drawings may share: `width`,
      `height`, and the first of its rows in `frames` and in `ways`: `frame` and `way`, which have
      an end mark too.
    - `frames`, in the order of a drawing's vertices: `x`, `y`, `width`, `height`, in pixels.
    - `ways`, in the order of a drawing's links: the first row in `points` as `point` (and an end
      mark), and `aside`: 1 for a link that leads to the right, from a parameter to the operation
      beside it, 2 for one that leads up somewhere, else 0; and where its norm is written, as
      `figure_x`, `figure_y` (null where there is no room), which is the end of the text where
      `figure_ends` is 1.
    - `points`: `x`, `y`.
    - `vertices`: `kind`, `state`, `severity` (texts or null), `name`, `detail`, `figure` (what
      stands on it), `label` (its whole name), `shape`, `line` (where it was made), `module`,
      `parameter`, `tensor` (what a click on it selects; null for nothing), `nodes` (how many it
      stands for), `norm`, and `cut`: 1 where it lies behind a cut.
    - `links`: `source`, `target` (indices of the drawing's vertices), `kind`, `state`, `norm`,
      `tensors`.

    Norms are exact; null is not measured.

    Args:
        drawings: As `module_drawings` has them.
        tensors: By node: the tensor that it makes, as its index among the report's.
    """
    tables = _Tables(tensors)
    for module, drawing in drawings.items():
        tables.add(module, drawing)
    return tables.columns()


@dataclass(slots=True)
class _Layouts:
    """The layouts, each different one once."""

    numbers: dict[object, int] = field(default_factory=dict)
    sizes: list[tuple[float, float]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    points: list[tuple[float, float]] = field(default_factory=list)
    ways: list[tuple[int, int, Figure | None]] = field(default_factory=list)
    """Path of each link: first point, bends, and position of its norm."""
    starts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, drawing: Drawing) -> int:
        """Return the number of the layout of a drawing."""
        frames = tuple(placed.frame for placed in drawing.vertices)
        # In a drawing without boxes, a link is one line.
        ways = tuple((link.ways[0], _aside(link), link.figure) for link in drawing.links)
        number = self.numbers.setdefault((frames, ways), len(self.sizes))
        if number == len(self.sizes):
            self.sizes.append((drawing.width, drawing.height))
            self.starts.append((len(self.frames), len(self.ways)))
            self.frames += frames
            for points, aside, figure in ways:
                self.ways.append((len(self.points), aside, figure))
                self.points += points
        return number


@dataclass(slots=True)
class _Tables:
    tensors: Mapping[int, int]
    layouts: _Layouts = field(default_factory=_Layouts)
    drawings: list[tuple[int, int, int, int]] = field(default_factory=list)
    vertices: list[PlacedVertex] = field(default_factory=list)
    links: list[PlacedLink] = field(default_factory=list)

    def add(self, module: int, drawing: Drawing) -> None:
        """Add a drawing."""
        layout = self.layouts.add(drawing)
        self.drawings.append((module, layout, len(self.vertices), len(self.links)))
        self.vertices += drawing.vertices
        self.links += drawing.links

    def columns(self) -> dict[str, Json]:
        """Return all as columns."""
        ends = (-1, -1, len(self.vertices), len(self.links))
        module, layout, vertex, link = zip(*self.drawings, ends, strict=True)
        return {
            "drawings": {
                "module": positions(None if one < 0 else one for one in module),
                "layout": positions(layout),
                "vertex": positions(vertex),
                "link": positions(link),
            },
            **self._layouts(),
            "vertices": self._vertices(),
            "links": {
                "source": positions(one.link.source for one in self.links),
                "target": positions(one.link.target for one in self.links),
                "kind": texts(one.link.kind for one in self.links),
                "state": texts(link_state(one.link) for one in self.links),
                "norm": numbers(one.link.grad_norm for one in self.links),
                "tensors": positions(one.link.tensors for one in self.links),
            },
        }

    def _tensor(self, vertex: Vertex) -> int | None:
        # Of a loop's operation no tensor is selected: those of its turns differ.
        is_single = vertex.kind == "operation" and vertex.copies == 1
        return self.tensors.get(vertex.nodes[0]) if is_single else None

    def _layouts(self) -> dict[str, Json]:
        kept = self.layouts
        starts = [*kept.starts, (len(kept.frames), len(kept.ways))]
        frames = kept.frames
        return {
            "layouts": {
                "width": _pixels(width for width, _ in kept.sizes),
                "height": _pixels(height for _, height in kept.sizes),
                "frame": positions(frame for frame, _ in starts),
                "way": positions(way for _, way in starts),
            },
            "frames": {
                "x": _pixels(frame.x for frame in frames),
                "y": _pixels(frame.y for frame in frames),
                "width": _pixels(frame.width for frame in frames),
                "height": _pixels(frame.height for frame in frames),
            },
            "ways": {
                "point": positions([*(point for point, _, _ in kept.ways), len(kept.points)]),
                "aside": positions(aside for _, aside, _ in kept.ways),
                "figure_x": _pixels(figure.x if figure else None for _, _, figure in kept.ways),
                "figure_y": _pixels(figure.y if figure else None for _, _, figure in kept.ways),
                "figure_ends": positions(
                    figure.is_end if figure else None for _, _, figure in kept.ways
                ),
            },
            "points": {
                "x": _pixels(x for x, _ in kept.points),
                "y": _pixels(y for _, y in kept.points),
            },
        }

    def _vertices(self) -> dict[str, Json]:
        vertices = [placed.vertex for placed in self.vertices]
        written = [writing(vertex) for vertex in vertices]
        return {
            "kind": texts(vertex.kind for vertex in vertices),
            "state": texts(
                vertex_state(one) if one.kind in ("parameter", "module") else None
                for one in vertices
            ),
            "severity": texts(vertex.severity for vertex in vertices),
            "name": texts(words.name for words in written),
            "detail": texts(words.detail for words in written),
            "figure": texts(words.figure for words in written),
            "label": texts(vertex.label for vertex in vertices),
            "class": texts(vertex.class_name for vertex in vertices),
            "shape": texts(vertex.detail for vertex in vertices),
            "line": texts(vertex.position for vertex in vertices),
            "module": positions(_first(vertex.modules) for vertex in vertices),
            "parameter": positions(_first(vertex.parameters) for vertex in vertices),
            "tensor": positions(self._tensor(vertex) for vertex in vertices),
            "nodes": positions(len(vertex.nodes) for vertex in vertices),
            "norm": numbers(vertex.grad_norm for vertex in vertices),
            "cut": positions(int(vertex.is_behind_cut) for vertex in vertices),
        }


def _aside(link: PlacedLink) -> int:
    return 1 if link.is_beside else 2 if link.is_back else 0


def _first(indices: Sequence[int]) -> int | None:
    return indices[0] if indices else None


def _pixels(values: Iterable[float | None]) -> Json:
    return single_numbers(None if value is None else round(value, 1) for value in values)
