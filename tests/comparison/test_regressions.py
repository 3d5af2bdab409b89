"""What a gate makes of a comparison: at each limit, and just inside of it."""

import math

import pytest

from gradscope.comparison.tolerance import Tolerance
from gradscope.recording.evidence.training import RunEnding
from tests.comparison.sides import GivenGradient, compared, finding, of_run, of_step, reported

BASE = {"a.weight": 1.0, "b.weight": 2.0}


def regressions(base, other, **options):
    verdict = compared(base, other, **options).verdict
    assert (verdict.outcome == "failed") == bool(verdict.regressions)
    return [(one.kind, one.subjects) for one in verdict.regressions]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (GivenGradient(reach="none"), "lost"),
        (GivenGradient(reach="zero"), "zero"),
        (GivenGradient(reach="frozen"), "frozen"),
        (GivenGradient(norm=math.inf, nonfinite=1), "non-finite"),
        (2.0 * 1.11, "norm"),
        (2.0 / 1.11, "norm"),
    ],
)
def test_a_parameter_that_is_worse(given, kind):
    assert regressions(of_step(BASE), of_step(BASE | {"b.weight": given})) == [
        (kind, ("b.weight",))
    ]


@pytest.mark.parametrize(
    "given", [GivenGradient(norm=2.0), 2.0 * 1.09, 2.0 / 1.09, GivenGradient(norm=2.0, weight=99.0)]
)
def test_a_parameter_that_is_as_good(given):
    assert regressions(of_step(BASE), of_step(BASE | {"b.weight": given})) == []


def test_getting_better_and_growing_are_no_regressions():
    sick = {
        "a.weight": GivenGradient(reach="none"),
        "b.weight": GivenGradient(norm=math.nan, nonfinite=1),
    }
    larger = of_step(BASE | {"c.weight": 1.0})
    assert regressions(reported(of_step(sick), finding()), larger) == []


def test_worst_parameters_come_first():
    many = {f"{position}.weight": 1.0 for position in range(30)}
    grown = {name: 2.0 + position for position, name in enumerate(many)}
    ((kind, subjects),) = regressions(of_step(many), of_step(grown))
    assert (kind, subjects) == ("norm", tuple(reversed(many)))


@pytest.mark.parametrize(
    ("level", "severity", "fails"),
    [("error", "error", True), ("error", "warning", False), ("warning", "warning", True),
     ("warning", "note", False), ("note", "note", True)],
)  # fmt: skip
def test_new_findings_count_from_a_level_on(level, severity, fails):
    sides = reported(of_step(BASE)), reported(of_step(BASE), finding(severity=severity))
    found = regressions(*sides, tolerance=Tolerance(fail_level=level))
    assert found == ([("finding", ("GS201",))] if fails else [])


def test_a_finding_that_was_there_counts_only_when_it_comes_to_the_level():
    sides = {level: reported(of_step(BASE), finding(severity=level)) for level in
             ("error", "warning", "note")}  # fmt: skip
    assert regressions(sides["error"], sides["error"]) == []
    assert regressions(sides["warning"], sides["error"]) == [("finding", ("GS201",))]
    assert regressions(sides["note"], sides["warning"]) == []


@pytest.mark.parametrize(
    ("before", "after", "fails"),
    [
        (1.0, 1.09, False), (1.0, 1.11, True), (1.0, 0.5, False), (1.0, math.nan, True),
        (math.nan, math.nan, False), (-5.0, -4.6, False), (-5.0, -4.4, True), (0.0, 0.0, False),
        (0.0, 0.1, True), (None, 3.0, False), (1.0, math.inf, True), (math.nan, 1.0, False),
    ],
)  # fmt: skip
def test_loss_of_a_step(before, after, fails):
    found = regressions(of_step(BASE, loss=before), of_step(BASE, loss=after))
    assert found == ([("loss", ())] if fails else [])


def test_a_lost_loss_is_not_a_worse_one():
    """Where the other side starts from no scalar, nothing to compare."""
    assert regressions(of_step(BASE, loss=1.0), of_step(BASE, loss=None)) == []


@pytest.mark.parametrize(("end", "fails"), [(1.09, False), (1.11, True), (math.nan, True)])
def test_loss_at_the_end_of_a_run(end, fails):
    base = of_run({"w": [1.0] * 20}, [3.0] * 18 + [1.0, 1.0])
    other = of_run({"w": [1.0] * 20}, [3.0] * 18 + [end, end])
    assert regressions(base, other) == ([("loss", ())] if fails else [])


def test_a_spike_on_the_way_is_none():
    base = of_run({"w": [1.0] * 20}, [1.0] * 20)
    other = of_run({"w": [1.0] * 20}, [1.0] * 5 + [9.0] + [1.0] * 14)
    assert regressions(base, other) == []


def test_one_step_of_runs_is_judged_by_itself():
    base = of_run({"w": [1.0] * 20}, [1.0] * 20)
    other = of_run({"w": [1.0] * 5 + [4.0] + [1.0] * 14}, [1.0] * 5 + [9.0] + [1.0] * 14)
    assert regressions(base, other, step=5) == [("norm", ("w",)), ("loss", ())]
    assert regressions(base, other, step=6) == []


def test_a_run_that_an_exception_ended():
    usual = RunEnding(kind="returned")
    raised = RunEnding(kind="raised", exception="ValueError", message="no")
    sides = {one.kind: of_run({"w": [1.0]}, [1.0], evidence=(one,)) for one in (usual, raised)}
    found = compared(sides["returned"], sides["raised"]).verdict.regressions
    assert [(one.kind, one.message) for one in found] == [("ending", "ended by ValueError: no")]
    assert regressions(sides["raised"], sides["raised"]) == []
    assert regressions(sides["raised"], sides["returned"]) == []


def test_ranks_may_have_other_losses_and_no_other_gradients_or_weights():
    names = ["job.rank0.gradscope", "job.rank1.gradscope"]
    base = of_run({"w": [1.0] * 4}, [1.0] * 4)
    assert regressions(base, of_run({"w": [1.0] * 4}, [9.0] * 4), names=names) == []
    apart = of_run({"w": [1.0 + 1e-4] * 4}, [1.0] * 4, weights=10.1)
    assert regressions(base, apart, names=names) == [("norm", ("w",)), ("weights", ("w",))]
    close = of_run({"w": [1.0 + 1e-7] * 4}, [1.0] * 4)
    assert regressions(base, close, names=names) == []
    assert regressions(base, apart) == []  # which are no ranks


def test_ranks_that_hold_parts_of_a_parameter_cannot_be_held_to_each_other():
    """As under FSDP: the norms are of the parts."""
    names = ["job.rank0.gradscope", "job.rank1.gradscope"]
    whole = {"norm.weight": 1.0}
    sides = [of_step(whole | {"w": GivenGradient(norm=norm, is_shard=True)}) for norm in (1.0, 7.0)]
    assert regressions(*sides, names=names) == []
    assert regressions(*sides) == [("norm", ("w",))]  # which are no ranks, but the same one twice
    apart = [of_step({"w": GivenGradient(norm=norm, is_shard=True)}) for norm in (1.0, 7.0)]
    assert compared(*apart, names=names).verdict.skip_reasons == (
        "B holds different shards than A",
    )


@pytest.mark.parametrize(
    "names",
    [["job.rank0.gradscope", "job.rank0.gradscope"], ["a.rank0.gradscope", "b.rank1.gradscope"],
     ["job.rank0.gradscope", "model.py"], ["job.rank0.gradscope", "job.gradscope"]],
)  # fmt: skip
def test_what_is_no_set_of_ranks(names):
    assert not compared(of_step(BASE), of_step(BASE), names=names).of_ranks


@pytest.mark.parametrize("dead", [0, 1])
def test_nothing_can_be_compared_where_one_has_no_gradient(dead):
    sides = [of_step(BASE), of_step(BASE)]
    sides[dead] = of_step(dict.fromkeys(BASE, GivenGradient(reach="none")))
    verdict = compared(*sides).verdict
    assert verdict.outcome == "unjudged"
    assert verdict.skip_reasons == (
        f"no parameter of {'AB'[dead]} has a gradient: {dead}.gradscope",
    )


def test_nothing_can_be_compared_without_a_parameter_in_common():
    other = of_step({"x.y.weight": GivenGradient(dims=(3,)), "z.weight": GivenGradient(dims=(5,))})
    assert compared(of_step(BASE), other).verdict.skip_reasons == (
        "A and B have no parameter in common",
    )
