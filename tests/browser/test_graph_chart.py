"""The graphs of modules as a reader opens them, against the drawings that they come from."""

import re

import pytest
import torch
from playwright.sync_api import expect
from torch import nn

from gradscope.report.graph.labels import exact
from gradscope.report.graph.module_drawings import module_drawings
from gradscope.report.graph.render import render_graph_page
from gradscope.session.api import inspect
from tests.browser.recordings import HOSTILE, hostile_report
from tests.nightly import some_on_push


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.coder = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x + self.coder(x).detach())


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    batch = torch.randn(3, 4)
    return inspect(Model(), batch, lambda out: out.square().mean(), probe_steps=0)


@pytest.fixture
def show(open_page, tmp_path):
    def show(report, module=None, **given):
        path = tmp_path / "graph.html"
        path.write_text(render_graph_page(report, module), encoding="utf-8")
        page = open_page(path, **given)
        page.locator(".plan").scroll_into_view_if_needed()
        expect(page.locator(".plan .vertex").first).to_be_visible()
        return page

    return show


def names(page):
    return page.locator(".plan .vertex").evaluate_all(
        "all => all.map(one => one.querySelector('text').textContent)"
    )


def index_of(report, path):
    return next(row.index for row in report.modules if row.path == path)


@pytest.mark.nightly
def test_the_model_is_open_at_first(show, report):
    page = show(report)
    expect(page.locator(".shown")).to_have_text("Model")
    drawing = module_drawings(report)[0]
    assert len(names(page)) == len(drawing.vertices)
    assert page.locator(".plan .edge").count() == len(drawing.links)
    assert {"blocks.0 Block", "head Linear", "✂ detach()"} <= set(names(page))


@pytest.mark.nightly
def test_links_tell_their_exact_norms(show, report):
    page = show(report)
    titles = page.locator(".plan .edge title").all_text_contents()
    links = module_drawings(report)[0].links
    found = [re.search(r"gradient norm (\S+)", title) for title in titles]
    norms = [None if one is None else float(one[1]) for one in found]
    assert norms == [placed.link.grad_norm for placed in links]


def test_a_click_opens_a_module_and_up_leads_out(show, report):
    page = show(report)
    page.locator(".plan .vertex.module").nth(1).click()
    expect(page.locator(".shown")).to_have_text("blocks.1 Block")
    expect(page.locator(".crumbs")).to_have_text(re.compile("blocks"))
    assert {"before", "after", "norm LayerNorm", "Relu"} <= set(names(page))
    page.get_by_role("button", name="up").click()
    expect(page.locator(".shown")).to_have_text("Model")
    page.get_by_role("button", name="up").click()
    expect(page.locator(".shown")).to_have_text("the whole graph")
    expect(page.get_by_role("button", name="up")).to_be_disabled()
    assert "Mean" in names(page)
    page.locator(".plan .vertex.module").click()
    expect(page.locator(".shown")).to_have_text("Model")


@pytest.mark.nightly
def test_keys_open_a_module_and_zoom(show, report):
    page = show(report)
    page.locator(".plan .vertex.module").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".shown")).to_have_text("blocks.1 Block")
    plan = page.locator(".plan")
    plan.focus()
    width = float(plan.get_attribute("viewBox").split()[2])
    page.keyboard.press("+")
    assert float(plan.get_attribute("viewBox").split()[2]) == pytest.approx(width * 0.8)
    left = float(plan.get_attribute("viewBox").split()[0])
    page.keyboard.press("ArrowRight")
    assert float(plan.get_attribute("viewBox").split()[0]) > left
    page.keyboard.press("Backspace")
    expect(page.locator(".shown")).to_have_text("Model")


@pytest.mark.nightly
def test_dragging_moves_the_picture_and_opens_nothing(show, report):
    page = show(report)
    plan, module = page.locator(".plan"), page.locator(".plan .vertex.module").first
    before = plan.get_attribute("viewBox").split()
    box = module.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 40, steps=4)
    page.mouse.up()
    after = plan.get_attribute("viewBox").split()
    assert float(after[0]) < float(before[0])
    assert after[2:] == before[2:]
    expect(page.locator(".shown")).to_have_text("Model")


@pytest.mark.nightly
def test_a_parameter_is_marked_when_it_is_chosen(show, report):
    page = show(report, "head")
    expect(page.locator(".shown")).to_have_text("head Linear")
    weight = page.locator(".plan .vertex.parameter", has_text="weight")
    weight.click()
    expect(weight).to_have_class(re.compile("chosen"))
    row = report.parameter("head.weight")
    assert exact(row.grad.norm) in weight.locator("title").text_content()
    expect(page.locator(".plan .vertex.chosen")).to_have_count(1)


@pytest.mark.nightly
def test_what_is_cut_off_is_marked(show, report):
    page = show(report)
    coder = page.locator(".plan .vertex.module", has_text="coder")
    expect(coder).to_have_class(re.compile("behind"))
    assert page.locator(".plan .edge.cutoff").count() == 2
    assert "cut off" in coder.locator("title").text_content()


def test_hostile_names_are_text(show):
    report = hostile_report()
    page = show(report)
    assert page.evaluate("() => window.harmed") is None
    assert page.locator(".plan img, .plan b").count() == 0
    titles = page.locator(".plan .vertex title").all_text_contents()
    assert any(title.startswith(HOSTILE) for title in titles)


@pytest.mark.nightly
@pytest.mark.parametrize("dark", some_on_push([False, True], {1}))
def test_texts_lie_within_their_frames(show, report, dark):
    page = show(report, "blocks.0", dark=dark)
    outside = page.locator(".plan .vertex").evaluate_all(
        """all => all.filter(one => {
            const frame = one.querySelector('rect').getBBox();
            return [...one.querySelectorAll('text')].some(text => {
                const box = text.getBBox();
                return box.x < frame.x || box.x + box.width > frame.x + frame.width;
            });
        }).map(one => one.textContent)"""
    )
    assert outside == []
