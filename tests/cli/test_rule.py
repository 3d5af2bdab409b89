"""`gradscope rule` as a process."""

import json

import pytest

from gradscope.rules.catalogue import RULES
from gradscope.rules.manual import HEADINGS, summary_of
from gradscope.rules.rule import FAMILIES
from tests.nightly import some_on_push


@pytest.fixture
def shown(gradscope_in, tmp_path):
    """Runs `gradscope rule` on a terminal of some width."""
    return lambda *words, width=80: gradscope_in(tmp_path, "rule", *words, COLUMNS=str(width))


def test_table_holds_every_rule_by_family(shown):
    done = shown(width=200)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    families = [line for line in lines if line in FAMILIES.values()]
    assert families == list(dict.fromkeys(FAMILIES[rule.code[:3]] for rule in RULES))
    rows = [line.split(None, 3) for line in lines if line.startswith("  GS")]
    assert [row[0] for row in rows] == [rule.code for rule in RULES]
    for row, rule in zip(rows, RULES, strict=True):
        assert row[1:3] == [rule.name, rule.level]
        assert summary_of(rule).startswith(row[3][:40])


def test_table_of_a_family_or_prefix(shown):
    codes = [rule.code for rule in RULES if rule.code.startswith("GS7")]
    for selector in ("loss", "GS7", "gs7"):
        done = shown(selector, "--output-format", "markdown")
        assert [line[2:7] for line in done.stdout.splitlines()[2:]] == codes


@pytest.mark.parametrize("selector", some_on_push(["GS105", "gs105", "dead-unit"], 2))
def test_manual_of_a_rule(selector, shown):
    done = shown(selector)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0] == "GS105 dead-unit  warning  flow"
    assert [line for line in lines if line in HEADINGS] == list(HEADINGS)
    assert "  [tool.gradscope.rules.dead-unit]" in lines
    assert "  error_share = 0.9" in lines
    assert "sample_models/dead_unit.py" in done.stdout
    assert max(map(len, lines)) <= 80


def test_json_holds_manuals_whole(shown):
    one = json.loads(shown("GS105", "--output-format", "json").stdout)
    assert one["schema_version"] == "1.0"
    (rule,) = one["rules"]
    assert (rule["code"], rule["family"], rule["level"]) == ("GS105", "flow", "warning")
    assert tuple(rule["sections"]) == HEADINGS
    assert {"name": "error_share", "default": 0.9}.items() <= rule["thresholds"][2].items()
    every = json.loads(shown("--output-format", "json").stdout)
    assert [rule["code"] for rule in every["rules"]] == [rule.code for rule in RULES]


def test_markdown_manual_has_headings_and_a_configuration_to_paste(shown):
    text = shown("GS105", "--output-format", "markdown").stdout
    assert text.startswith("# GS105 dead-unit\n")
    assert all(f"\n## {heading}\n" in text for heading in HEADINGS)
    assert "```toml\n[tool.gradscope.rules.dead-unit]\n" in text


def test_output_file(tmp_path, shown):
    done = shown("GS105", "-o", str(tmp_path / "a.txt"))
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "a.txt").read_text().startswith("GS105 dead-unit")


@pytest.mark.parametrize(
    ("selector", "error"),
    some_on_push(
        [
            ("GS999", "error: no rule `GS999`"),
            ("GS7O2", "error: no rule `GS7O2`: did you mean `GS702`?"),
            ("dead-unti", "error: no rule `dead-unti`: did you mean `dead-unit`?"),
            ("tool", "error: there is no rule in `tool` yet"),
        ],
        2,
    ),
)
def test_unknown_rules_are_errors(selector, error, shown):
    done = shown(selector)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(error)


@pytest.mark.parametrize("output_format", some_on_push(["text", "json", "markdown"], 2))
def test_terminals_of_few_characters_get_what_they_can_show(
    tmp_path, output_format, ascii_gradscope_in
):
    done = ascii_gradscope_in(tmp_path, "rule", "GS201", "--output-format", output_format)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() and "torch.tensor(" in done.stdout


def test_torch_is_not_imported(tmp_path, packages_imported_by):
    done, packages = packages_imported_by(tmp_path, "rule", "GS105")
    assert done.returncode == 0, done.stderr
    assert "torch" not in packages
