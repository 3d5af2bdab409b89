import importlib
import json
import re
import sys
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import html

from gradscope.errors import GradscopeError
from gradscope.report.document import Fact
from gradscope.report.html.page import SCRIPTS, STYLES, Chart, Tab, embedded_json, render_page
from gradscope.report.html.phrasing import FindingCard, PageTexts
from gradscope.report.snippets import CodeLine, Label, Snippet

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"q\" 'a' [/x] \u2028"


def tab(text="a tab", **changes):
    values = {"title": text, "texts": PageTexts(heading=text), "charts": ()} | changes
    return Tab(**values)


def card(text):
    line = CodeLine(number=3, text=text, labels=(Label(message=text, is_cause=True),))
    return FindingCard(
        severity="error",
        rule="GS201",
        name="gradient-cut",
        message=text,
        location=text,
        snippets=(Snippet(file=text, line=3, function=text, lines=(line,), message=text),),
        details=(Fact("measured", text),),
        remedy=text,
        module=0,
        step=None,
        standing=text,
    )


@given(
    st.recursive(
        st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_embedded_json_is_json_without_markup(value):
    text = embedded_json(value)
    assert json.loads(text) == value
    assert not re.search(r"[<>&\u2028\u2029]", text)


def test_numbers_that_json_has_not_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded_json([float("nan")])


@settings(max_examples=settings().max_examples // 4)  # each makes a whole page
@example(HOSTILE)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_text_from_outside_stays_text(text):
    words = PageTexts(
        heading=text,
        facts=(Fact("model", text),),
        verdict="Found 1 error.",
        level="error",
        warnings=(text,),
        cards=(card(text),),
        notes=((text, (text,)),),
    )
    charts = (
        Chart(
            name="p", kind="table", title=text, caption=text, content={"name": text, "columns": []}
        ),
    )
    page = render_page([tab(text, texts=words, charts=charts)], text)
    plain = html.fromstring(render_page([tab(texts=words, charts=charts)], "x"))
    found = html.fromstring(page)
    # What is written is never an element: there are as many of each as with any other text.
    assert elements(found) == elements(plain)
    assert found.xpath("//h1")[0].text_content() == text
    (data,) = found.xpath("//script[@type='application/json']")
    assert json.loads(data.text)["charts"]["p"]["content"]["name"] == text


def elements(page):
    return [(one.tag, sorted(one.keys())) for one in page.iter() if isinstance(one.tag, str)]


def test_the_page_holds_its_icon_which_browsers_else_ask_the_server_for():
    page = html.fromstring(render_page([tab()], "x"))
    (icon,) = page.xpath("//head/link[@rel='icon']/@href")
    assert icon.startswith("data:image/svg+xml,")


def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else():
    page = html.fromstring(render_page([tab()], "x"))
    policy = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    scripts = [one.text for one in page.xpath("//script[not(@type)]")]
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in hashes]
    assert not {"connect-src", "font-src", "frame-src", "object-src"} & set(rules)
    assert "unsafe-eval" not in policy and "http" not in policy


def test_a_page_without_plots_is_small_and_one_with_them_holds_plotly():
    plot = Chart(
        name="p",
        kind="plot",
        title="t",
        caption="c",
        content={"figure": {"data": [], "layout": {}}},
    )
    assert len(render_page([tab()], "x")) < 170_000
    page = render_page([tab(charts=(plot,))], "x")
    assert "plotly.js" in page and len(page.encode()) < 5_200_000


def test_a_page_holds_its_scripts_and_styles_without_their_comments():
    assets = files("gradscope.report.html") / "assets"
    page = render_page([tab()], "x")
    for name in (*(f"{one}.js" for one in SCRIPTS), *(f"{one}.css" for one in STYLES)):
        text = (assets / name).read_text("utf-8")
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) if name.endswith("css") else text
        lines = [line for line in code.splitlines() if line.strip()]
        assert all(line in page for line in lines if not line.lstrip().startswith("//"))
    assert not re.search(r"^ *(//|/\*)", page, re.MULTILINE)


def test_the_same_page_every_time():
    assert render_page([tab()], "x") == render_page([tab()], "x")


@pytest.mark.parametrize("missing", ["plotly", "jinja2", "markupsafe"])
def test_a_missing_package_is_told(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [one for one in sys.modules if one.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "gradscope.report.html.page")
    with pytest.raises(GradscopeError, match=missing) as caught:
        importlib.import_module("gradscope.report.html.page")
    assert caught.value.help == "pip install plotly jinja2"


def test_an_option_and_a_percentage_are_never_broken_and_stay_text():
    options = (Fact("tensors", f"report --step 3, at most 5 % {HOSTILE}"),)
    page = html.fromstring(render_page([tab(texts=PageTexts(heading="h", facts=options))], "p"))
    (shown,) = page.xpath("//dl[@class='facts']//dd")
    assert shown.text_content() == f"report --step 3, at most 5 % {HOSTILE}"
    assert [one.text for one in shown.xpath("span[@class='unbroken']")] == ["--step 3", "5 %"]
    assert not shown.xpath(".//script | .//img")
