"""A graph as SVG in a real browser: words fit their frames, on light and on dark paper."""

import pytest

from gradscope.report.graph.layout import lay_out
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.svg import render_svg
from tests.browser.recordings import hostile_report, sample_report

OVERFLOWING = """() => [...document.querySelectorAll('g')].filter(group => {
  const frame = group.querySelector(':scope > rect');
  const words = group.querySelectorAll(':scope > text');
  if (!frame || !words.length || group.querySelector(':scope > path')) return false;
  const room = frame.getBBox();
  return [...words].some(one => {
    const box = one.getBBox();
    return box.x < room.x || box.x + box.width > room.x + room.width;
  });
}).map(group => group.textContent)"""

GROUND = "() => getComputedStyle(document.querySelector('rect')).fill"


@pytest.fixture
def show(open_page, tmp_path):
    def show(report, **given):
        drawing = lay_out(graph_part(report, GraphOptions(folds_repeats=True)))
        path = tmp_path / "graph.svg"
        path.write_text(render_svg(drawing, "a graph"), encoding="utf-8")
        return open_page(path, **given)

    return show


@pytest.mark.parametrize(
    "name", [pytest.param("healthy_gpt.py", marks=pytest.mark.nightly), "gradient_cut.py"]
)
def test_words_fit_their_frames(show, name):
    assert show(sample_report(name)).evaluate(OVERFLOWING) == []


def test_hostile_names_are_text(show):
    page = show(hostile_report())
    assert page.evaluate("() => window.harmed") is None
    assert page.evaluate("() => document.querySelectorAll('img, b, script').length") == 0


@pytest.mark.nightly
def test_paper_is_as_light_as_the_reader_s(show):
    report = sample_report("gradient_cut.py")
    light, dark = (show(report, dark=dark).evaluate(GROUND) for dark in (False, True))
    assert light == "rgb(255, 255, 255)"
    assert sum(map(int, dark[4:-1].split(","))) < 200
