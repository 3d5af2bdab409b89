"""What the tests of real pages stand on: the watch sees what a page must not do, and only that."""

import pytest

from tests.browser import conftest
from tests.browser.pages import Pages
from tests.nightly import some_on_push

STRICT = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


def test_quiet_page_passes(open_page, write_page):
    page = open_page(
        write_page(
            """
            <p id=text>▁▂█ ✂ →</p><button>press</button><img src="PIXEL">
            <script>
              console.log("loaded"); console.info("well");
              const text = document.getElementById("text");
              document.querySelector("button").onclick = () => { text.textContent = "pressed" };
              document.onkeydown = (event) => { text.textContent = event.key };
            </script>
            """.replace("PIXEL", PIXEL),
            policy=STRICT,
        )
    )
    assert page.title() == "A page"
    page.click("button")
    assert page.inner_text("#text") == "pressed"
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#text") == "ArrowDown"


@pytest.mark.nightly
def test_page_has_the_size_and_the_colours_asked_for(open_page, write_page, tmp_path):
    path = write_page("<p>here</p>")
    page = open_page(path, width=640, height=480, dark=True)
    assert page.evaluate("[innerWidth, innerHeight]") == [640, 480]
    dark = "matchMedia('(prefers-color-scheme: dark)').matches"
    assert page.evaluate(dark) is True
    assert open_page(path).evaluate(dark) is False
    page.emulate_media(media="print")
    assert page.evaluate("matchMedia('print').matches") is True
    picture = page.screenshot(path=tmp_path / "picture.png")
    assert picture.startswith(b"\x89PNG") and (tmp_path / "picture.png").stat().st_size > 0


@pytest.mark.parametrize("name", some_on_push(["a b#c?d%20.html", "größe-⛰.html"], 2))
def test_file_of_any_name_is_opened(open_page, write_page, name):
    assert open_page(write_page("<p>here</p>", name=name)).inner_text("p") == "here"


def troubles(browser, path):
    """What the watch says of a page; a page in which nothing is wrong fails the test."""
    pages = Pages(browser)
    pages.open(path)
    with pytest.raises(AssertionError) as failed:
        pages.close()
    return str(failed.value).splitlines()[1:]


def assert_told(found, expected):
    """Hold that each trouble is told, by its first words, and that nothing else is."""
    untold = [start for start in expected if not any(line.startswith(start) for line in found)]
    surplus = [line for line in found if not line.startswith(tuple(expected))]
    assert (untold, surplus) == ([], [])


def test_what_a_script_does_wrong_is_told(browser, write_page):
    body = """
        <script>console.error("broken", 3); console.warn("odd"); console.assert(0, "no")</script>
        <script>null.x</script>
        <script>setTimeout(() => { throw new Error("late") })</script>
        <script>Promise.reject(new Error("held"))</script>
        <script>alert("inside"); window.open("about:blank")</script>
    """
    expected = (
        "console error: broken 3",
        "console warning: odd",
        "console assert: no",
        "exception: Cannot read properties of null",
        "exception: late",
        "exception: held",
        "dialog alert: inside",
        "window: about:blank",
    )
    assert_told(troubles(browser, write_page(body)), expected)


def test_every_request_is_told(browser, write_page):
    body = """
        <link rel=stylesheet href=style.css>
        <img src="http://example.org/i.png">
        <script src="//example.org/s.js"></script>
        <iframe src="http://example.org/frame"></iframe>
        <script>
          fetch("https://example.org/f").catch(() => 0);
          navigator.sendBeacon("http://example.org/b");
          new WebSocket("ws://example.org/");
        </script>
    """
    expected = (
        "request of a stylesheet: file:///",
        "request of a image: http://example.org/i.png",
        "request of a script: file://example.org/s.js",
        "request of a document: http://example.org/frame",
        "request of a fetch: https://example.org/f",
        "request of a ping: http://example.org/b",
        "socket: ws://example.org/",
        "console error: Failed to load resource",
    )
    assert_told(troubles(browser, write_page(body)), expected)


def test_what_the_policy_forbids_is_told_though_the_page_hides_it(browser, write_page):
    body = """
        <img src="http://example.org/i.png">
        <p style="color: red"></p>
        <script>
          try { eval("1") } catch { }
          fetch("https://example.org").catch(() => 0);
        </script>
    """
    policy = "default-src 'none'; script-src 'unsafe-inline'"
    found = troubles(browser, write_page(body, policy=policy))
    for directive in ("img-src", "style-src-attr", "script-src", "connect-src"):
        assert any(f"forbidden by {directive}" in line for line in found), (directive, found)


def test_file_beside_the_page_is_told_and_not_read(browser, write_page, tmp_path):
    (tmp_path / "beside.js").write_text("console.error('read')")
    expected = ("request of a script: file:///", "console error: Failed to load resource")
    assert_told(troubles(browser, write_page("<script src=beside.js></script>")), expected)


@pytest.mark.parametrize(("variables", "raised"), [({}, pytest.skip), ({"CI": "1"}, pytest.fail)])
def test_without_a_browser_only_ci_fails(monkeypatch, variables, raised):
    monkeypatch.setattr(conftest, "installed_browser", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(raised.Exception, match="there is no Chromium"):
        next(conftest.browser.__wrapped__())
