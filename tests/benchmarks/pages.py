"""Pages of HTML: what they take on disk, and how long a reader waits for them."""

import os
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from gradscope.report.html.report_page import render_html
from gradscope.session.report import Report
from tests.browser.large import large_inspection, large_run
from tests.browser.pages import Pages, installed_browser, launch

FIRST_CHART = ".canvas > *"
TURN = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


def pages() -> None:
    """Print what the largest pages that have to be usable take."""
    executable = installed_browser()
    assert executable is not None, "there is no Chromium on this machine: install chromium"
    reports = {
        "10,002 tensors": large_inspection(250),
        "12,562 tensors": large_inspection(314),
        "2,000 steps of 300 parameters": large_run(2000, 300),
    }
    with sync_playwright() as playwright:
        browser = launch(playwright, executable)
        for name, report in reports.items():
            print(f"\na page of {name}")
            _measure(browser, report)
        browser.close()


def _measure(browser: Browser, report: Report) -> None:
    start = sum(os.times()[:4])
    text = render_html([report])
    print(f"  {'made':<20} {sum(os.times()[:4]) - start:8.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(text, encoding="utf-8")
        print(f"  {'on disk':<20} {path.stat().st_size / 1e6:8.2f} MB")
        print(f"  {'CPU to first chart':<20} {_seconds_to_first_chart(browser, path):8.2f} s")
        opened = Pages(browser)
        start = time.perf_counter()
        page = opened.open(path)
        print(f"  {'words are there':<20} {time.perf_counter() - start:8.2f} s")
        page.locator(FIRST_CHART).first.wait_for()
        page.evaluate(TURN)
        print(f"  {'charts too':<20} {time.perf_counter() - start:8.2f} s")
        start = time.perf_counter()
        page.keyboard.press("End")
        page.evaluate(TURN)
        print(f"  {'gone to its end':<20} {time.perf_counter() - start:8.2f} s")
        opened.close()


def _seconds_to_first_chart(browser: Browser, path: Path) -> float:
    """Return the processor's time of the page's thread: what else the machine does is not in it."""
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.locator(FIRST_CHART).first.wait_for()
    page.evaluate(TURN)
    metrics = session.send("Performance.getMetrics")["metrics"]
    page.close()
    return next(one["value"] for one in metrics if one["name"] == "ThreadTime")
