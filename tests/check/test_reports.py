"""The reports of a check in text and JSON; the formats of CI have tests of their own."""

import io
import json
import re
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
from rich.console import Console

from gradscope.check.options import Policy
from gradscope.check.results import Failure, TargetResult, target_result
from gradscope.report.documents.check import closing_text
from gradscope.report.render import Manner, render_check

SCHEMA = json.loads(files("gradscope").joinpath("schemas/check-1.json").read_text())
REPORT = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())
BROKEN = TargetResult(
    name="nope.py",
    failures=(Failure(what="cannot open 'nope.py'", cause="there is no such file", seed=0),),
)
ADVISED = TargetResult(name="net.py", failures=(Failure(what="no batch", help="--input 8,8"),))


def rendered(result, output_format="full", width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return render_check(result, output_format, console)


def read(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    value = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


@pytest.fixture
def mixed(result_of):
    """One target that fails, one that passes with a warning, and one that could not be judged."""
    result = result_of("exploding_stack", "unused_parameter")
    return replace(result, targets=(*result.targets, BROKEN), command="gradscope check …")


def test_schemas_agree_on_what_they_share():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name in ("number", "location", "summary"):
        assert SCHEMA["$defs"][name] == REPORT["$defs"][name]
    finding, reported = SCHEMA["$defs"]["finding"], REPORT["$defs"]["finding"]
    assert {key: finding["properties"][key] for key in reported["properties"]} == (
        reported["properties"]
    )


def test_advice_for_targets_that_are_not_checked_is_given_once(mixed):
    both = replace(mixed, targets=(ADVISED, replace(ADVISED, name="other.py"), BROKEN))
    text = rendered(both)
    assert re.findall(r"^help +(.*\S) *$", text, re.MULTILINE) == ["--input 8,8"]
    assert text.index("other.py") < text.index("help") < text.index("Could not check 3 of 3")


def test_json_says_how_each_target_came_out(mixed):
    value = read(rendered(mixed, "json"))
    assert [one["outcome"] for one in value["targets"]] == ["failed", "passed", "unjudged"]
    assert (value["gate"]["outcome"], value["gate"]["exit_code"]) == ("unjudged", 2)
    assert value["gate"]["counts"] == {"error": 1, "warning": 1, "note": 0}
    assert [(one["target"], one["rule"]) for one in value["findings"]] == [
        ("exploding_stack", "GS101"),
        ("unused_parameter", "GS203"),
    ]


def test_numbers_that_are_not_finite_are_valid_json(result_of):
    value = read(rendered(result_of("non_finite_gradient"), "json"))
    assert value["targets"][0]["runs"][0]["summary"]["grad_norm"] == "NaN"


def test_json_lines_hold_what_the_object_holds(mixed):
    lines = [json.loads(line) for line in rendered(mixed, "jsonl").splitlines()]
    value = read(rendered(mixed, "json"))
    of_kind = {
        kind: [
            {key: item for key, item in line.items() if key != "kind"}
            for line in lines
            if line["kind"] == kind
        ]
        for kind in ("gate", "target", "finding")
    }
    assert of_kind == {
        "gate": [value["gate"]],
        "target": value["targets"],
        "finding": value["findings"],
    }


@pytest.mark.parametrize("width", [60, 80, 140])
def test_text_ends_with_a_line_a_target_and_the_verdict(mixed, width):
    lines = rendered(mixed, width=width).splitlines()
    assert lines[-1] == "Could not check 1 of 3 targets; found 1 error, 1 warning."
    assert max(map(len, lines)) <= width
    heads = [line.split("  ")[0] for line in lines]
    assert [word for word in heads if word in ("failed", "passed", "not checked")] == [
        "failed",
        "passed",
        "not checked",
    ]


def test_a_long_path_is_broken_between_its_parts(result_of):
    folders = "experiments/language/pretraining/configurations/"
    name = f"{folders}transformer_stack_with_shared_weights.py"
    result = result_of("exploding_stack", "healthy_mlp")
    targets = (replace(result.targets[0], name=name), result.targets[1])
    text = rendered(replace(result, targets=targets), width=80)
    table = text[text.index("\nfailed") : text.index("\nFailed")]
    broken = [line[8:].split("  ")[0] for line in table.split("\npassed")[0].splitlines() if line]
    assert "".join(part.strip() for part in broken).startswith(name)
    ends = [part.strip()[-1] for part in broken if part.strip()]
    assert set(ends) <= set("/_y")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("samples", "policy", "closing"),
    [
        (["healthy_mlp"], {}, "Passed: no findings in 1 target."),
        (["unused_parameter"], {}, "Passed: 1 warning in 1 target."),
        (["unused_parameter"], {"fail_level": "warning"}, "Failed: 1 warning."),
        (["unused_parameter"], {"max_warnings": 0}, "Failed: 1 warning, above the limit of 0."),
        (
            ["exploding_stack", "healthy_mlp"],
            {"exit_zero": True},
            "Failed: 1 error; --exit-zero ignores it.",
        ),
    ],
)
def test_the_last_line_says_whether_it_passes_and_why_not(result_of, samples, policy, closing):
    result = result_of(*samples, policy=Policy(**policy))
    assert rendered(result).splitlines()[-1] == closing
    concise = rendered(result, "concise").splitlines()
    assert [line for line in concise if not line.startswith("next: ")][-1] == closing
    assert concise[-1].startswith("next: ") == any(target.findings for target in result.targets)


def test_known_findings_are_counted_and_not_shown(result_of):
    result = result_of("exploding_stack")
    (target,) = result.targets
    known = replace(target, findings=tuple(replace(one, is_known=True) for one in target.findings))
    text = rendered(replace(result, targets=(known,), stale=("GS201 in a.py",)))
    assert "GS101" not in text
    assert "passed  exploding_stack  no new findings, 1 known;" in text
    assert text.splitlines()[-1] == "Passed: no new findings, 1 known in 1 target."
    assert "In the baseline, but no longer found: GS201 in a.py." in text


def test_findings_ignored_by_module_are_counted_and_not_shown(result_of):
    text = rendered(result_of("exploding_stack", per_module_ignores={"*": ("ALL",)}))
    assert "GS101" not in text
    assert "1 finding ignored by per-module-ignores." in text


def test_findings_say_under_which_seeds_they_show(result_of, run_of):
    sick, healthy = run_of("gradient_cut", 3), run_of("gradient_cut", 4, ignore=("GS201",))
    result = result_of("healthy_mlp")
    seen = replace(result, targets=(target_result("model.py", [sick, healthy]),))
    assert "seeds: 1 of 2: 3" in rendered(seen)
    assert "(seeds: 1 of 2: 3)" in rendered(seen, "concise")
    both = replace(result, targets=(target_result("model.py", [sick, sick]),))
    assert "seeds: all 2" in rendered(both)


@pytest.mark.parametrize("name", ["[/x]", "a\nb", "\x1b[31m", "\ud800", "ø" * 200])
def test_hostile_names_harm_no_report(result_of, name):
    result = result_of("gradient_cut")
    hostile = replace(
        result, targets=(replace(result.targets[0], name=name), replace(BROKEN, name=name))
    )
    for output_format in ("full", "concise", "markdown"):
        text = rendered(hostile, output_format)
        assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert read(rendered(hostile, "json"))["targets"][0]["name"] == name


def test_a_target_that_was_trained_says_so(result_of, run_of):
    run = run_of("healthy_mlp")
    way = replace(run.recording.steps[0], kind="training", optimizer="SGD(lr=0.1)")
    steps = (way, *run.recording.steps)
    trained = replace(run, recording=replace(run.recording, steps=steps))
    result = replace(result_of("healthy_mlp"), targets=(target_result("m", [trained]),))
    assert "trained 1 step with SGD(lr=0.1)" in " ".join(rendered(result).split())


def test_findings_after_training_say_so(result_of, run_of):
    run = run_of("gradient_cut")
    way = replace(run.recording.steps[0], kind="training", optimizer="SGD(lr=0.1)")
    steps = (way, way, *run.recording.steps)
    trained = replace(run, recording=replace(run.recording, steps=steps))
    result = replace(result_of("healthy_mlp"), targets=(target_result("m", [trained]),))
    for output_format in ("full", "concise", "github", "gitlab", "sarif", "markdown"):
        assert "after 2 training steps" in rendered(result, output_format)


def test_the_brief_text_is_the_findings_and_the_last_line(mixed):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    text = render_check(mixed, "full", console, Manner(is_brief=True))
    assert text.startswith("error[GS101] ")
    assert text.splitlines()[-1] == closing_text(mixed)
    assert not re.search("^(passed|failed|not checked)", text, re.MULTILINE)
    assert "Not applicable" not in text


def test_agents_are_told_the_next_command(result_of, monkeypatch):
    sick, healthy = result_of("exploding_stack"), result_of("healthy_mlp")
    assert "next:" not in rendered(sick)
    monkeypatch.setenv("AI_AGENT", "some agent")
    assert rendered(sick).splitlines()[-1] == "next: gradscope rule GS101"
    assert "next:" not in rendered(healthy)
    assert [read(rendered(one, "json"))["next"] for one in (sick, healthy)] == [
        "gradscope rule GS101",
        None,
    ]


def test_a_refused_guess_names_the_command_that_guesses(result_of):
    refused = Failure(what="no batch for Net.forward(self, x)", needs_guess=True)
    healthy = result_of("healthy_mlp")
    target = TargetResult(name="net.py", failures=(refused,))
    result = replace(healthy, command="gradscope check net.py", targets=(target,))
    command = "gradscope check --allow-guesses net.py"
    assert rendered(result).splitlines()[-1] == f"next: {command}"
    assert read(rendered(result, "json"))["next"] == command
    other = replace(target, failures=(replace(refused, needs_guess=False),))
    assert "next:" not in rendered(replace(result, targets=(other,)))
