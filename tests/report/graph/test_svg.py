"""A drawing as SVG: it parses, stands alone, and says what the recording says."""

import math
import re
from dataclasses import replace

import pytest
from lxml import etree

from gradscope.analysis.folding import Span
from gradscope.report.graph.labels import exact
from gradscope.report.graph.layout import lay_out
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.svg import render_svg
from tests.report.graph.parts import box, link, part, vertex

NAMES = [
    "</title><script>alert(1)</script>",
    "]]><x>",
    "&amp;",
    "\"'",
    "new\nline",
    "\x1b[31m\x00\x0b",
    "\ud800",
    "\ufffe",
    "ünïcødé 張量",
    "x" * 3000,
]
SVG = "{http://www.w3.org/2000/svg}"


def svg_of(whole, name="a model", notes=()):
    text = render_svg(lay_out(whole), name, notes)
    return etree.fromstring(text.encode()), text


def of_report(report, **options):
    return graph_part(report, GraphOptions(folds_repeats=True, **options))


def titles(root):
    return [one.text for one in root.iter(f"{SVG}title")]


def texts(root):
    return [one.text for one in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text(name, named_report):
    whole = part(
        [vertex(0, label=name), vertex(1, "parameter", box=0, label=name, name=name)],
        [link(1, 0)],
        [box(0, name=name)],
    )
    root, text = svg_of(whole, name, [name])
    plain, _ = svg_of(part(whole.vertices[:0], [], []))
    assert {one.tag for one in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "style", "rect", "g", "title", "path", "text", "circle")
    }
    assert "<script" not in text
    shown = name if name.isprintable() else None
    if shown is not None and len(shown) < 30:
        assert shown in texts(root)
        assert any(shown in one for one in titles(root))
    assert all(len(one) < 3200 for one in texts(root))
    assert plain.tag == f"{SVG}svg"


def test_long_names_do_not_make_the_drawing_wide():
    whole = part([vertex(0, label="x" * 3000, box=0)], [], [box(0, name="y" * 3000)])
    assert lay_out(whole).width < 500


def test_nothing_is_loaded(report):
    _, text = svg_of(of_report(report))
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|href|@import|<image|<script", text)
    assert "prefers-color-scheme: dark" in text


def test_titles_have_the_norms_of_the_recording(report):
    root, _ = svg_of(graph_part(report, GraphOptions()))
    told = titles(root)
    for row in report.parameters:
        (found,) = (one for one in told if one.split("\n")[0] == row.name)
        if row.grad is not None:
            assert f"gradient norm {exact(row.grad.norm)}" in found.split("\n")
            assert float(re.search(r"gradient norm (\S+)", found)[1]) == row.grad.norm
        else:
            assert "gradient norm" not in found
            assert {"frozen": "frozen", "none": "no gradient"}[row.reach] in found


def test_states_are_told_apart():
    norms = {"zero": 0.0, "NaN": math.nan, "inf": math.inf, "one": 1.0}
    reaches = ("none", "frozen", "unknown")
    known = [(name, Span(low=norm, high=norm), "gradient") for name, norm in norms.items()]
    missing = [(reach, None, reach) for reach in reaches]
    vertices = [
        replace(vertex(n, "parameter", name=name), norms=span, reach=reach)
        for n, (name, span, reach) in enumerate([*known, *missing])
    ]
    root, _ = svg_of(part(vertices, []))
    captured_steps = {}
    for group in root.iter(f"{SVG}g"):
        name, rect = group.find(f"{SVG}text"), group.find(f"{SVG}rect")
        if name is not None and rect is not None:
            captured_steps[name.text] = rect.get("class")
    assert captured_steps["NaN"] == captured_steps["inf"]
    assert len({captured_steps[name] for name in ("zero", "NaN", "one", "none", "frozen")}) == 5
    assert {"0", "nan", "inf", "1.00", "no gradient", "frozen", "not measured"} <= set(texts(root))


def test_larger_gradients_have_thicker_links():
    whole = part(
        [vertex(n) for n in range(4)],
        [link(0, 1, norm=1e-6), link(1, 2, norm=1e-3), link(2, 3, norm=1.0)],
    )
    root, _ = svg_of(whole)
    widths = [
        float(one.get("stroke-width"))
        for one in root.iter(f"{SVG}path")
        if one.get("stroke-width") and one.getparent().find(f"{SVG}title") is not None
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3
    assert "1.00e-6" in texts(root)
    assert "gradient norm 1.00e-6" in texts(root)


def test_the_drawing_is_the_same_every_time(report):
    assert svg_of(of_report(report))[1] == svg_of(of_report(report))[1]


def test_what_was_folded_is_said(report):
    whole = of_report(report, max_nodes=4)
    root, _ = svg_of(whole, notes=[whole.folded])
    assert whole.folded in texts(root)
