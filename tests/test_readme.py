"""The README tells the truth."""

import importlib.util
import re
from pathlib import Path

import pytest

from gradscope.config import keys, plan_targets, read_configuration

_spec = importlib.util.spec_from_file_location("readme", Path(__file__).with_name("readme.py"))
readme = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(readme)

SHOWN = list(readme.blocks())


def comparable(text):
    """Without what differs between machines: last digits, bars that hang on them, versions."""
    text = re.sub(r"torch \S+", "torch", text)
    text = re.sub(r"[▏▎▍▌▋▊▉█▒▁▂▃▄▅▆▇]+", "|", text)
    return re.sub(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", re.sub(r"[ \t]+", " ", text))


def test_readme_shows_commands():
    assert SHOWN


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_shown_output_is_what_the_command_prints(command, shown, gradscope_in):
    def run(program, *arguments):
        if program != "gradscope":
            return readme.run(program, *arguments)
        return gradscope_in(readme.ROOT, *arguments, **readme.ENVIRONMENT)

    assert comparable(readme.output_of(command, run)) == comparable(shown)


def test_pictures_are_there_small_and_described():
    text = readme.README.read_text(encoding="utf-8")
    shown = re.findall(r'src(?:set)?="([^"]+)"', text)
    assert shown
    assert all((readme.ROOT / path).stat().st_size < 300_000 for path in shown)
    images = re.findall(r"<img [^>]*>", text)
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in images)


def test_table_of_rules_is_current():
    (table,) = readme.TABLE.findall(readme.README.read_text(encoding="utf-8"))
    assert table == readme.rule_table(), "python tests/readme.py pastes it again"


def test_shown_configuration_is_valid_and_has_every_key(tmp_path):
    (shown,) = re.findall(r"```toml\n(.*?)```", readme.README.read_text(encoding="utf-8"), re.S)
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
    text = readme.README.read_text(encoding="utf-8")
    ci = (readme.ROOT / ".ci" / "run").read_text(encoding="utf-8")
    install, _, run = (
        part.strip()
        for part in re.search(r"^(python3 -m venv .*pytest.*)$", text, re.M)[1].partition(
            "&& .venv/bin/python"
        )
    )
    assert f".venv/bin/python {run}" in ci
    for step in install.split("&&"):
        assert step.strip() in ci
