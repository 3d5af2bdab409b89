"""A real browser's pages, and what they did that a report must never do."""

import shutil
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Playwright, Route

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-first-run",
    "--no-sandbox",
)
"""The pages are our own, and nothing but their requests is to be seen.

The sandbox needs rights that a container does not have.
"""

OF_THE_PAGE: Final = ("data:", "blob:")
"""Addresses of what the page itself holds."""

REPORT_VIOLATIONS: Final = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`forbidden by ${event.effectiveDirective}: ${event.blockedURI}`);
});
"""
"""A page that catches what its policy throws leaves nothing on the console."""

SETTLED: Final = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


def installed_browser() -> str | None:
    """Return the path of the system's own Chromium."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def launch(playwright: Playwright, executable: str) -> Browser:
    """Start a headless Chromium; more than a second."""
    return playwright.chromium.launch(executable_path=executable, args=list(QUIET))


class Pages:
    """Opens files in fresh pages and keeps account of everything wrong that they do.

    Wrong are errors and warnings on the console, which is where a violated content policy shows
    too, exceptions that nobody caught, dialogs, further windows, and every request but the one
    for the file.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.troubles: list[str] = []

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        scale: float = 1,
    ) -> Page:
        """Return the loaded page of a file; `scale` is in device pixels a CSS pixel."""
        address = path.resolve().as_uri()
        return self.visit(
            address, f"{address}#", width=width, height=height, dark=dark, scale=scale
        )

    def visit(
        self,
        address: str,
        allowed: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        scale: float = 1,
    ) -> Page:
        """Return the loaded page of an address, which may request what begins with another."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            device_scale_factor=scale,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            service_workers="block",
        )
        self._contexts.append(context)
        self._watch(context, allowed)
        page = context.new_page()
        context.on("page", lambda opened: self._note("window", opened.url))
        page.goto(address)
        return page

    def close(self) -> None:
        """Close every page; raises AssertionError with what they did wrong."""
        for context in self._contexts:
            for page in context.pages:
                page.evaluate(SETTLED)
            context.close()
        self._contexts.clear()
        assert not self.troubles, "the page did what it must not:\n" + "\n".join(self.troubles)

    def _watch(self, context: BrowserContext, allowed: str) -> None:
        context.on(
            "console",
            lambda message: (
                self._note(f"console {message.type}", f"{message.text} {message.location['url']}")
                if message.type in ("error", "warning", "assert")
                else None
            ),
        )
        context.add_init_script(REPORT_VIOLATIONS)
        context.on("weberror", lambda error: self._note("exception", str(error.error)))
        context.on("dialog", self._dismiss)
        context.route("**/*", lambda route: self._answer(route, allowed))
        context.route_web_socket("**/*", lambda socket: self._note("socket", socket.url))

    def _answer(self, route: Route, allowed: str) -> None:
        url = route.request.url
        if f"{url.partition('#')[0]}#".startswith(allowed):
            route.continue_()
        elif url.startswith(OF_THE_PAGE):
            route.fallback()
        else:
            self._note(f"request of a {route.request.resource_type}", url)
            route.abort()

    def _dismiss(self, dialog: Dialog) -> None:
        self._note(f"dialog {dialog.type}", dialog.message)
        dialog.dismiss()

    def _note(self, what: str, text: str) -> None:
        self.troubles.append(f"{what}: {text}")
