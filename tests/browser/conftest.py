"""Real pages in a real Chromium: `open_page(path)`."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.pages import Pages, installed_browser, launch


# Not for the whole session: while playwright is open, this thread has a running event loop, and
# the tests elsewhere start loops and fork processes of their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    executable = installed_browser()
    if executable is None:
        without = "there is no Chromium on this machine: install the package chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(without)
    with sync_playwright() as playwright:
        running = launch(playwright, executable)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a file: `open_page(path, width=1280, height=900, dark=False)`.

    The test fails at its end if a page of it logged an error or a warning, raised, violated its
    content policy or tried any request but the one for the file.
    """
    pages = Pages(browser)
    yield pages.open
    pages.close()


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open the address of a server: `visit(address, width=1280)`. Fails as `open_page` does.

    The pages are closed before the folder is removed: they would ask for recordings that are gone.
    """
    pages = Pages(browser)
    yield lambda address, **given: pages.visit(address, address, **given)
    pages.close()


@pytest.fixture
def write_page(tmp_path: Path) -> Callable[..., Path]:
    """Write a small page: `write_page(body, policy="default-src 'none'")`."""

    def write(body: str, *, policy: str = "", name: str = "page.html") -> Path:
        rule = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
        path = tmp_path / name
        path.write_text(
            f"<!doctype html><html lang=en><meta charset=utf-8>{rule}<title>A page</title>{body}",
            encoding="utf-8",
        )
        return path

    return write
