"""README.md and docs/ tell the truth."""

import importlib.util
import re
from pathlib import Path

import pytest

from gradscope.config import keys, plan_targets, read_configuration
from gradscope.rules.catalogue import RULES


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


documentation = imported(Path(__file__).with_name("documentation.py"))

ROOT, DOCS = documentation.ROOT, documentation.DOCS
TEXTS = {path: path.read_text(encoding="utf-8") for path in documentation.pages()}
SHOWING = [path for path, text in TEXTS.items() if documentation.BLOCK.search(text)]
README_LINES = 300
WITH_INSTALLATION = (
    "README.md",
    "docs/ci.md",
    "docs/installation.md",
    ".github/actions/gradscope/action.yml",
    ".gitlab/gradscope.yml",
    ".pre-commit-hooks.yaml",
)

every_page = pytest.mark.parametrize(
    "page", TEXTS, ids=[path.relative_to(ROOT).as_posix() for path in TEXTS]
)


def comparable(text):
    """Without what differs between machines: last digits, bars that hang on them, versions."""
    text = re.sub(r"torch \S+", "torch", text)
    text = re.sub(r"[▏▎▍▌▋▊▉█▒▁▂▃▄▅▆▇]+", "|", text)
    return re.sub(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", re.sub(r"[ \t]+", " ", text))


def test_readme_is_short_and_shows_commands():
    assert ROOT / "README.md" in SHOWING
    assert len(TEXTS[ROOT / "README.md"].splitlines()) <= README_LINES


ON_PUSH = ("README.md", "docs/commands/rule.md")
"""Pages whose output each push tests."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=name, marks=() if name in ON_PUSH else pytest.mark.nightly)
        for path in SHOWING
        for name in [path.relative_to(ROOT).as_posix()]
    ],
)
def test_shown_output_is_what_the_commands_print(page, gradscope_in):
    script = ""

    def run(folder, program, *arguments):
        nonlocal script
        if program != "gradscope":
            return documentation.run(folder, program, *arguments)
        if arguments[0] == "run":
            script = Path(arguments[-1]).name
        done = gradscope_in(folder, *arguments, **documentation.ENVIRONMENT)
        # Where torch is at hand, a run begins before the script is `__main__`, and has this name.
        done.stdout, done.stderr = (
            text.replace("forking.py", script) for text in (done.stdout, done.stderr)
        )
        return done

    for command, shown, real in documentation.printed(page, run):
        assert comparable(real) == comparable(shown), command


@every_page
def test_no_console_block_is_left_untested(page):
    text = TEXTS[page]
    assert text.count("```console") == len(re.findall(documentation.CONSOLE, text, re.DOTALL))


@every_page
def test_pictures_are_there_small_and_described(page):
    text = TEXTS[page]
    shown = re.findall(r'src(?:set)?="([^"]+)"', text)
    shown += re.findall(r"^```\{image\} (\S+)$", text, re.M)
    assert all((page.parent / path).stat().st_size < 300_000 for path in shown)
    images = re.findall(r"<img [^>]*>", text)
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in images)
    assert len(re.findall(r"^```\{image\}", text, re.M)) == len(
        re.findall(r"^:alt: .{20,}$", text, re.M)
    )


@every_page
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", TEXTS[page]):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def headings(page):
    """The names of a page's headings in links."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_table_of_rules_is_current():
    (table,) = documentation.TABLE.findall(TEXTS[documentation.RULES_PAGE])
    assert table == documentation.rule_table(), "python tests/documentation.py pastes it again"


def test_pages_of_rules_hold_what_the_command_prints(gradscope_in, tmp_path):
    pages = imported(DOCS / "_ext" / "rule_pages.py").rule_pages()
    assert len(pages) == len(RULES)
    for code in ("GS101", "GS702"):
        done = gradscope_in(tmp_path, "rule", code, "--output-format", "markdown")
        assert pages[f"{code}.md"] == done.stdout


@pytest.mark.parametrize("name", WITH_INSTALLATION)
def test_gradscope_is_installed_by_the_name_of_its_distribution(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"pip install [^\n&`]*\bgradscope\b(?!-torch)|\bgradscope *[=~<>]=", text)


def test_shown_configuration_is_valid_and_has_every_key(tmp_path):
    shown = re.search(r"```toml\n(.*?)```", TEXTS[DOCS / "configuration.md"], re.S)[1]
    path = tmp_path / "pyproject.toml"
    path.write_text(shown)
    found = read_configuration(path)
    assert found.settings.select and found.settings.thresholds and found.settings.norm_limits
    assert [target.name for target in plan_targets(found, (), {})] == ["small", "large"]
    for key in {**keys.TOP_LEVEL, **keys.OF_TARGET}:
        assert re.search(rf"(^|or ){key} = ", shown, re.M), key
    for table in keys.SUBTABLES:
        assert f"[tool.gradscope.{table}" in shown


def test_test_command_is_the_one_that_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    install, _, run = (
        part.strip()
        for part in re.search(r"^(python3 -m venv .*pytest.*)$", TEXTS[ROOT / "README.md"], re.M)[
            1
        ].partition("&& .venv/bin/python")
    )
    assert f".venv/bin/python {run}" in ci
    for step in install.split("&&"):
        # CI builds the documentation, too.
        assert step.strip().replace("[dev]", "[dev,docs]") in ci
