"""The pages of `gradscope view` as a reader meets them, while trainings go on."""

import http.server
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from gradscope.recording.meta import header_of
from gradscope.recording.run_recorder import RunRecorder
from tests.launch.conftest import ENVIRONMENT
from tests.recording.test_growing import steps_of
from tests.report.html.charts.loops import loop
from tests.view.conftest import RETURNED, serve, written_run

__all__ = ["serve"]

HOSTILE = "<img src=x onerror='harmed=1'>\"&..\\ü.gradscope"
SOON = 20_000
"""Milliseconds."""


@pytest.fixture
def growing(tmp_path):
    """A run of 60 steps, written as far as a test asks: `growing(30)`."""
    recording = loop([1 / (1 + step) for step in range(60)])
    recorder = RunRecorder(tmp_path / "run.gradscope", header_of(recording))
    steps = steps_of(recording)
    made = [0]

    def grow(count):
        for _ in range(count - made[0]):
            recorder.add(next(steps))
        made[0] = count

    grow.end = lambda: recorder.close(RETURNED)
    return grow


def has_steps(page, count):
    facts = page.locator("#panel-0 .facts")
    expect(facts).to_contain_text(f"{count} steps", timeout=SOON)


STATE = """() => {
  const plot = document.querySelector('[data-chart=curves] .js-plotly-plot');
  return { zoom: plot.layout.xaxis.range.map(Math.round), top: plot.getBoundingClientRect().top,
           steps: Math.max(...plot.data.flatMap((trace) => trace.x)), hash: location.hash };
}"""


def zoom(page, start, end):
    """Draw a frame from one share of the width of the first panel to another."""
    box = page.locator("[data-chart=curves] .nsewdrag").first.bounding_box()
    for share, act in ((start, page.mouse.down), (end, page.mouse.up)):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=4)
        act()


@pytest.mark.nightly
def test_a_page_takes_up_new_steps_and_stays_where_it_is(serve, visit, growing, tmp_path):
    growing(30)
    page = visit(serve(tmp_path).server.address)
    page.get_by_role("link", name="run.gradscope").click()
    has_steps(page, 30)
    expect(page.locator("[data-chart=curves] .main-svg").first).to_be_visible(timeout=SOON)
    page.locator(".find input").fill("model0")
    page.locator(".find input").press("Enter")
    expect(page.locator(".crumbs")).to_have_text("model0")
    page.locator("[data-chart=parameters] summary").click()
    rows = page.locator("[data-chart=parameters]")
    rows.get_by_role("searchbox").fill("weight1")
    page.locator("[data-chart=curves]").scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 50)")
    zoom(page, 0.2, 0.6)
    before = page.evaluate(STATE)
    assert before["zoom"][1] < 25
    growing(60)
    has_steps(page, 60)
    after = page.evaluate(STATE)
    assert (before.pop("steps"), after.pop("steps")) == (29, 59)
    assert after.pop("top") == pytest.approx(before.pop("top"), abs=2)
    assert after == before
    expect(page.locator(".crumbs")).to_have_text("model0")
    expect(rows.get_by_role("searchbox")).to_have_value("weight1")
    expect(rows.locator("tbody tr:not(.space)")).to_have_count(1)
    growing.end()
    expect(page.locator(".bar .state")).to_have_text("ended", timeout=SOON)
    page.go_back()
    page.reload()


@pytest.mark.nightly
def test_two_clicks_compare_two_recordings(serve, visit, tmp_path):
    for name in ("a", "b", HOSTILE.removesuffix(".gradscope")):
        written_run(tmp_path / f"{name}.gradscope", (1.0, len(name)))
    page = visit(serve(tmp_path).server.address, width=420, dark=True)
    assert page.evaluate("() => globalThis.harmed") is None
    rows = page.locator("tr[data-key]")
    expect(rows).to_have_count(3)
    page.get_by_label("Find a recording").fill("onerror")
    expect(rows.locator("visible=true")).to_have_count(1)
    rows.locator("visible=true").get_by_role("button", name="compare").click()
    expect(page.locator(".crumbs")).to_contain_text(HOSTILE)
    page.get_by_label("Find a recording").fill("a.gradscope")
    page.get_by_role("button", name="with this one").locator("visible=true").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{HOSTILE} → a.gradscope")
    page.get_by_role("link", name="recordings").click()
    page.get_by_role("link", name="b.gradscope").click()
    page.get_by_role("link", name="compare").click()
    expect(page.locator(".crumbs")).to_contain_text("comparing b.gradscope")
    assert page.evaluate("() => globalThis.harmed") is None


@pytest.mark.nightly
def test_a_list_of_200_recordings_is_there_at_once_and_is_judged(serve, visit, tmp_path):
    content = written_run(tmp_path / "0.gradscope").read_bytes()
    for number in range(1, 200):
        (tmp_path / f"{number}.gradscope").write_bytes(content)
    page = visit(serve(tmp_path).server.address)
    expect(page.locator("tr[data-key]")).to_have_count(200)
    timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    assert page.evaluate(timing) < 4_000  # with the imports of the first page
    expect(page.get_by_text("no findings").first).to_be_visible(timeout=SOON)
    page.reload()
    assert page.evaluate(timing) < 1_000


@pytest.mark.nightly
def test_what_is_shown_stays_when_its_file_is_removed_or_cut(serve, visit, growing, tmp_path):
    growing(30)
    growing.end()
    path = tmp_path / "run.gradscope"
    page = visit(serve(path).server.address)
    has_steps(page, 30)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    expect(page.locator(".bar .offline")).to_contain_text("cannot read", timeout=SOON)
    has_steps(page, 30)
    path.unlink()
    expect(page.locator(".bar .offline")).to_contain_text("no step is recorded", timeout=SOON)
    path.write_bytes(whole)
    expect(page.locator(".bar .offline")).to_have_count(0, timeout=SOON)


TRAINING = """
import sys, time, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.05)
"""


@contextmanager
def training(folder, name, steps):
    (folder / "train.py").write_text(TRAINING)
    command = ["run", "--quiet", "--save", f"{name}.gradscope", "train.py", str(steps)]
    process = subprocess.Popen(
        [sys.executable, "-m", "gradscope", *command],
        cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
def test_trainings_that_go_on_end_and_are_killed(serve, visit, tmp_path):
    page = visit(serve(tmp_path).server.address)
    expect(page.get_by_text("There is no recording yet")).to_be_visible()
    state = page.locator("tr[data-name='ends.gradscope'] .state")
    with training(tmp_path, "ends", 150) as process:
        expect(state).to_have_text("running", timeout=60_000)
        assert process.wait(120) == 0
        expect(state).to_have_text("ended", timeout=SOON)
    with training(tmp_path, "killed", 10_000) as process:
        page.get_by_role("link", name="killed.gradscope").click(timeout=60_000)
        expect(page.locator(".bar .state")).to_have_text("running")
        expect(page.locator("#panel-0 .facts")).to_contain_text(
            re.compile(r"run\d+ steps"), timeout=SOON
        )
        process.send_signal(signal.SIGKILL)
        told = page.locator(".bar .state")
        expect(told).to_have_text(re.compile(r"silent since \d\d:\d\d"), timeout=60_000)
        expect(page.locator("p.warning")).to_contain_text("killed")


@pytest.mark.nightly
def test_a_page_of_another_site_learns_nothing(browser, serve, tmp_path):
    written_run(tmp_path / "run.gradscope")
    address = serve(tmp_path).server.address

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<script src='{address}plotly.js'></script>".encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
    assert page.evaluate("() => typeof Plotly") == "undefined"
    read = """([address, mode]) => fetch(address, {mode})
        .then((answer) => answer.text()).catch(() => 'failed')"""
    for mode in ("cors", "no-cors"):
        assert page.evaluate(read, [address, mode]) in ("", "failed")
    page.close()
    server.shutdown()
    server.server_close()
    thread.join()
