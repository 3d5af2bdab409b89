"""Nothing overlaps, everything is where it belongs, and links go where they lead."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings

from gradscope.report.graph.drawing import FIGURE_FONT, curve_point
from gradscope.report.graph.labels import norms_text, text_width
from gradscope.report.graph.layout import lay_out
from tests.report.graph.parts import around, box, link, part, parts, vertex

NEAR = 0.01
"""Pixels that rounding may cost."""


def overlap(one, other):
    return (
        one.x + NEAR < other.right
        and other.x + NEAR < one.right
        and one.y + NEAR < other.bottom
        and other.y + NEAR < one.bottom
    )


def is_in(inner, outer):
    return (
        inner.x >= outer.x - NEAR
        and inner.y >= outer.y - NEAR
        and inner.right <= outer.right + NEAR
        and inner.bottom <= outer.bottom + NEAR
    )


def points_along(way):
    """Return points of the way as it is drawn."""
    for start, end in pairwise(way):
        for step in range(9):
            yield curve_point(start, end, step / 8)


@settings(deadline=None)
@given(parts())
def test_vertices_and_boxes_are_apart_and_in_their_boxes(whole):
    drawing = lay_out(whole)
    frames = {placed.box.index: placed.frame for placed in drawing.boxes}
    assert [placed.vertex for placed in drawing.vertices] == list(whole.vertices)
    assert [placed.box for placed in drawing.boxes] == list(whole.boxes)
    for one, other in combinations(drawing.vertices, 2):
        assert not overlap(one.frame, other.frame)
    for placed in drawing.vertices:
        homes = around(whole, placed.vertex.box)
        for index, frame in frames.items():
            assert (
                is_in(placed.frame, frame) if index in homes else not overlap(placed.frame, frame)
            )
        assert placed.frame.x >= 0
        assert placed.frame.right <= drawing.width
        assert 0 <= placed.frame.y < placed.frame.bottom <= drawing.height
    for one, other in combinations(whole.boxes, 2):
        if one.index in around(whole, other.index):
            assert is_in(frames[other.index], frames[one.index])
        else:
            assert not overlap(frames[one.index], frames[other.index])


@settings(deadline=None)
@given(parts())
def test_links_lead_from_source_to_target_past_all_others(whole):
    drawing = lay_out(whole)
    frames = [placed.frame for placed in drawing.vertices]
    boxes = {placed.box.index: placed.frame for placed in drawing.boxes}
    for placed in drawing.links:
        drawn = placed.link
        start = frames[drawn.source]
        if drawn.kind == "cut" and drawn.box is not None:
            start = boxes[drawn.box]
        assert len(placed.ways) == (2 if drawn.kind == "next" else 1)
        assert touches(start, placed.ways[0][0])
        assert touches(frames[drawn.target], placed.ways[-1][-1])
        for way in placed.ways:
            if not placed.is_back and not placed.is_beside:
                assert all(one[1] <= other[1] + NEAR for one, other in pairwise(way))
            for x, y in points_along(way) if not placed.is_beside else ():
                for index, frame in enumerate(frames):
                    if index not in (drawn.source, drawn.target):
                        assert not is_inside(x, y, frame)


def touches(frame, point):
    x, y = point
    return frame.x - NEAR <= x <= frame.right + NEAR and frame.y - NEAR <= y <= frame.bottom + NEAR


def is_inside(x, y, frame):
    return frame.x + NEAR < x < frame.right - NEAR and frame.y + NEAR < y < frame.bottom - NEAR


@settings(deadline=None)
@given(parts())
def test_the_same_part_is_drawn_the_same(whole):
    known = {}
    assert lay_out(whole) == lay_out(whole) == lay_out(whole, known) == lay_out(whole, known)


@settings(deadline=None)
@given(parts())
def test_a_graph_without_circles_and_boxes_leads_down_alone(whole):
    flat = [vertex(one.index, "operation") for one in whole.vertices]
    links = [link(*sorted((one.source, one.target))) for one in whole.links]
    drawing = lay_out(part(flat, {(one.source, one.target): one for one in links}.values()))
    assert not any(placed.is_back for placed in drawing.links)
    frames = [placed.frame for placed in drawing.vertices]
    for placed in drawing.links:
        assert frames[placed.link.source].bottom < frames[placed.link.target].y


@settings(deadline=None)
@given(parts())
def test_figures_stand_where_nothing_else_is(whole):
    drawing = lay_out(whole)
    told = [placed for placed in drawing.links if placed.figure is not None]
    rooms = []
    for placed in told:
        figure, width = placed.figure, text_width(norms_text(placed.link.norms), FIGURE_FONT)
        left = figure.x - width if figure.is_end else figure.x
        rooms.append((left, figure.y - 8, left + width, figure.y))
    for one, other in combinations(rooms, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for left, top, right, bottom in rooms:
        for placed in drawing.vertices:
            frame = placed.frame
            assert (
                right <= frame.x or frame.right <= left or bottom <= frame.y or frame.bottom <= top
            )


def test_a_circle_has_one_link_that_leads_up():
    drawing = lay_out(part(map(vertex, range(3)), [link(0, 1), link(1, 2), link(2, 0)]))
    assert [placed.is_back for placed in drawing.links] == [False, False, True]
    (_, y), *_, (_, end) = drawing.links[2].ways[0]
    assert end < y


def test_what_leads_to_the_next_copy_enters_where_the_first_copy_is_entered():
    whole = part(
        [vertex(0), vertex(1, box=0), vertex(2, box=0), vertex(3)],
        [link(0, 1), link(1, 2), link(2, 1, "next", 0), link(2, 3)],
        [box(0, copies=4)],
    )
    drawing = lay_out(whole)
    (enters, _, loops, leaves) = drawing.links
    out, back = loops.ways
    assert out[-1][0] == leaves.ways[0][0][0] == leaves.ways[0][-1][0]
    assert back[0][0] == enters.ways[0][0][0] == enters.ways[0][-1][0]
    (frame,) = (placed.frame for placed in drawing.boxes)
    assert out[-1][1] == pytest.approx(frame.bottom, abs=10)
    assert frame.y < back[0][1] < drawing.vertices[1].frame.y


def test_parameters_stand_beside_the_operation_that_uses_them():
    whole = part(
        [vertex(0, "parameter"), vertex(1, "parameter"), vertex(2)], [link(0, 2), link(1, 2)]
    )
    weight, bias, used = (placed.frame for placed in lay_out(whole).vertices)
    assert weight.right < used.x
    assert weight.bottom < bias.y
    assert (weight.y + bias.bottom) / 2 == pytest.approx((used.y + used.bottom) / 2)


def test_a_chain_and_what_skips_it_are_straight():
    whole = part(
        map(vertex, range(6)), [*(link(n, n + 1) for n in range(5)), link(0, 2), link(2, 4)]
    )
    drawing = lay_out(whole)
    middles = [placed.frame.x + placed.frame.width / 2 for placed in drawing.vertices]
    assert max(middles) - min(middles) < 1


@settings(max_examples=10, deadline=None)
@given(parts(most=60))
def test_larger_parts_are_laid_out_too(whole):
    assert len(lay_out(whole).vertices) == len(whole.vertices)
