"""Which charts stay on a page of many tabs."""

import pytest

from gradscope.report.html.page import Chart, Tab, tab_size, within
from gradscope.report.html.phrasing import FindingCard, PageTexts


def tab(*sizes):
    charts = tuple(
        Chart(name=f"p{at}", kind="plot", title=f"chart {at}", caption="",
                content={"text": "x" * size})
        for at, size in enumerate(sizes)
    )  # fmt: skip
    card = FindingCard(
        severity="error", rule="GS201", name="n", message="m", location="", snippets=(), details=(),
        remedy="r", module=3, step=2,
    )  # fmt: skip
    return Tab(title="t", texts=PageTexts(heading="h", cards=(card,)), charts=charts)


def kept(tabs):
    return [[chart.name for chart in one.charts] for one in tabs]


def test_what_fits_is_left_as_it_is():
    tabs = [tab(100, 100), tab(50)]
    room = 2 * max(map(tab_size, tabs))
    assert within(room, tabs, [0, 0], "alone") == tabs


def test_the_first_charts_of_every_tab_are_kept_before_the_last_of_one():
    tabs = [tab(1000, 5000, 100), tab(1000, 5000, 100)]
    found = within(3000, tabs, [0, 0], "ask for it alone")
    assert kept(found) == [["p0", "p2"], ["p0", "p2"]]
    title, lines = found[0].texts.notes[0]
    assert title.startswith("Omitted") and lines == ("chart 1", "ask for it alone")
    assert found[0].texts.cards[0].module == 3


def test_small_tabs_leave_their_share_to_the_others():
    found = within(4000, [tab(3000), tab(100)], [0, 0], "alone")
    assert kept(found) == [["p0"], ["p0"]]


@pytest.mark.parametrize(("urgency", "expected"), [([0, 1], [["p0"], []]), ([1, 0], [[], ["p0"]])])
def test_what_is_urgent_comes_first(urgency, expected):
    found = within(1500, [tab(1000), tab(1000)], urgency, "alone")
    assert kept(found) == expected
    empty = found[expected.index([])]
    # Without charts there is nothing that a button could show.
    assert empty.texts.cards[0].module is None and empty.modules == {}


def test_no_more_than_the_room_is_taken():
    tabs = [tab(700 * (at % 5), 300, 40 * at) for at in range(20)]
    for room in (0, 1000, 5000, 20_000):
        found = within(room, tabs, [at % 3 for at in range(20)], "alone")
        taken = sum(len(chart.content["text"]) for one in found for chart in one.charts)
        assert taken <= room
