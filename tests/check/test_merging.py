from dataclasses import replace

import pytest

from gradscope.check.results import Run, has_gradient, merged, skip_reason_of, target_result
from gradscope.recording.finding import Finding, Verdict


def finding(rule="GS101", fingerprint="f", **changes):
    values = {
        "rule": rule,
        "name": "a-rule",
        "severity": "error",
        "message": "m",
        "location": None,
        "remedy": "r",
        "fingerprint": fingerprint,
        "parameters": ("a",),
    }
    return Finding(**(values | changes))


@pytest.fixture
def run_with(run_of):
    def run(seed, *findings):
        found = run_of("healthy_mlp", seed)
        return Run(recording=found.recording, verdict=Verdict(findings=findings, ran=("GS101",)))

    return run


def test_one_cause_under_several_seeds_is_one_finding_at_its_worst(run_with):
    mild, bad = finding(severity="warning", message="mild"), finding(message="bad")
    (item,) = merged([run_with(4, mild), run_with(5), run_with(6, bad), run_with(7, mild)])
    assert item.finding is bad
    assert item.run == 2
    assert item.seeds == (4, 6, 7)


def test_causes_apart_stay_apart_and_the_worst_comes_first(run_with):
    note, error = finding("GS208", "n", severity="note"), finding("GS101", "e")
    found = merged([run_with(0, note), run_with(1, error, note)])
    assert [(item.finding.rule, item.seeds) for item in found] == [
        ("GS101", (1,)),
        ("GS208", (0, 1)),
    ]


def test_findings_of_one_run_that_share_a_fingerprint_are_not_merged(run_with):
    first, second = finding(parameters=("a",)), finding(parameters=("b",))
    found = merged([run_with(0, first, second), run_with(1, second, first)])
    assert sorted(item.finding.parameters for item in found) == [("a",), ("b",)]
    assert all(item.seeds == (0, 1) for item in found)


def test_a_healthy_run_is_judged(run_of):
    assert skip_reason_of(run_of("healthy_mlp")) is None


def test_a_gradient_of_zero_is_a_gradient(run_of):
    run = run_of("healthy_mlp")
    stats = [replace(stat, reach="zero") for stat in run.recording.parameter_stats]
    assert has_gradient(replace(run.recording, parameter_stats=tuple(stats)))


@pytest.mark.parametrize("reach", ["none", "frozen"])
def test_a_run_without_any_gradient_is_a_reason_to_skip(run_of, reach):
    run = run_of("healthy_mlp")
    stats = [
        replace(stat, reach=reach, gradient=None, reason="it was cut off")
        for stat in run.recording.parameter_stats
    ]
    silent = replace(run, recording=replace(run.recording, parameter_stats=tuple(stats)))
    failure = skip_reason_of(silent)
    assert failure.what == "no parameter received a gradient"
    assert failure.cause == "it was cut off"
    assert target_result("t", [silent]).failures == (failure,)


def test_a_step_that_autograd_ended_is_a_reason_to_skip_though_there_are_findings(run_of):
    run = run_of("backward_twice")
    assert [one.rule for one in run.verdict.findings] == ["GS502"]
    assert skip_reason_of(run).what == "autograd raised an exception"


def test_a_run_that_no_rule_judged_is_a_reason_to_skip(run_of):
    failure = skip_reason_of(run_of("healthy_mlp", ignore=("ALL",)))
    assert failure.what == "no rule could check the gradients"
    # The sample has no half precision to be judged.
    only = run_of("vanishing_stack", select=("GS205",))
    assert "the target has no optimizer" in skip_reason_of(only).cause
