"""What a baseline hides, and what it does not."""

import math
from dataclasses import replace

import pytest

from gradscope.check.baseline import (
    Baseline,
    applied,
    prune_baseline,
    pruned,
    read_baseline,
    updated,
    write_baseline,
)
from gradscope.check.baseline_file import target_key
from gradscope.check.results import CheckedFinding, CheckResult, Failure, target_result
from gradscope.recording.finding import Consequence
from tests.rules.test_samples import SETTINGS


def known_from(result):
    return updated(Baseline(), result)


def judged(result, baseline, tolerance=2.0, *, is_strict=False):
    return applied(result, baseline, tolerance, is_strict)


def changed(result, **values):
    """The result with the only finding of its only target changed."""
    (target,) = result.targets
    (item,) = target.findings
    item = replace(item, finding=replace(item.finding, **values))
    return replace(result, targets=(replace(target, findings=(item,)),))


def only(result):
    ((item,),) = (target.findings for target in result.targets)
    return item


def counted(result):
    return [item.finding.rule for target in result.targets for item in target.counted()]


def test_what_is_known_does_not_count_and_the_rest_does(result_of):
    old, both = result_of("dead_unit"), result_of("dead_unit", "unused_parameter")
    marked = judged(both, known_from(old))
    assert counted(marked) == ["GS203"]
    assert marked.stale == ()
    assert counted(judged(both, known_from(both))) == []
    assert counted(judged(both, Baseline())) == ["GS105", "GS203"]


def test_known_findings_come_last_in_their_target(result_of, run_of):
    run = run_of("exploding_gradient")
    (error,) = run.verdict.findings
    note = replace(error, rule="GS112", severity="note", fingerprint="n")
    run = replace(run, verdict=replace(run.verdict, findings=(error, note)))
    both = replace(result_of(), targets=(target_result("t", [run]),))
    baseline = known_from(both)
    kept = replace(baseline, entries=[one for one in baseline.entries if one.rule == "GS101"])
    (target,) = judged(both, kept).targets
    assert [(item.finding.rule, item.is_known) for item in target.findings] == [
        ("GS112", False),
        ("GS101", True),
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"severity": "error"}, "error instead of warning"),
        ({"count": 3}, "count 3 instead of 1"),
        ({"evidence": (("share", 1.7),)}, "share 1.7 instead of 0.812"),
        ({"evidence": (("share", math.nan),)}, "share nan instead of 0.812"),
        ({"severity": "error", "count": 9}, "error instead of warning, count 9 instead of 1"),
        ({"severity": "note"}, None),
        ({"count": 2}, None),
        ({"evidence": (("share", 1.6),)}, None),
        ({"evidence": ()}, None),
        ({"message": "other numbers", "remedy": "other"}, None),
    ],
)
def test_a_known_finding_counts_again_when_it_became_worse(result_of, changes, told):
    result = result_of("dead_unit")
    item = only(judged(changed(result, **changes), known_from(result)))
    assert item.worsened == told
    assert item.is_known == (told is None)


def test_decades_may_rise_by_the_logarithm_of_the_tolerance(result_of):
    result = result_of("exploding_gradient")
    decades = dict(only(result).finding.evidence)["decades"]
    for rise, is_known in ((0.29, True), (0.31, False)):
        worse = changed(result, evidence=(("decades", decades + rise),))
        assert only(judged(worse, known_from(result))).is_known is is_known
    barely = changed(result, evidence=(("decades", decades + 1e-6),))
    assert only(judged(barely, known_from(result), tolerance=1.0)).is_known


def test_another_target_another_rule_or_another_line_is_not_known(result_of):
    result = result_of("dead_unit")
    baseline = known_from(result)
    (target,) = result.targets
    elsewhere = replace(result, targets=(replace(target, name="other"),))
    assert counted(judged(elsewhere, baseline)) == ["GS105"]
    assert counted(judged(changed(result, rule="GS106"), baseline)) == ["GS106"]
    assert counted(judged(changed(result, fingerprint="0"), baseline)) == ["GS105"]


def test_a_second_mistake_on_the_same_line_counts(result_of):
    result = result_of("unused_parameter")
    (target,) = result.targets
    second = replace(only(result).finding, parameters=("late_head.weight",))
    items = (*target.findings, CheckedFinding(finding=second, run=0, seeds=(0,)))
    both = replace(result, targets=(replace(target, findings=items),))
    baseline = known_from(result)
    assert [i.finding.parameters for i in judged(both, baseline).targets[0].counted()] == [
        ("late_head.weight",)
    ]
    # Mended and made anew with another head: the line is the same, the mistake is not.
    assert counted(judged(changed(result, parameters=second.parameters), baseline)) == ["GS203"]
    assert counted(judged(both, known_from(both))) == []


def test_a_wrapped_model_and_another_layer_of_a_kind_are_known(result_of):
    result = result_of("unused_parameter")
    wrapped = tuple(f"module.{name}" for name in only(result).finding.parameters)
    assert only(judged(changed(result, parameters=wrapped), known_from(result))).is_known
    layered = changed(result, parameters=("blocks.3.gate.weight",))
    later = changed(result, parameters=("blocks.7.gate.weight", "blocks.9.gate.weight"))
    assert only(judged(later, known_from(layered))).is_known


def test_equal_findings_are_known_as_often_as_they_were(result_of):
    result = result_of("dead_unit")
    (target,) = result.targets
    twice = replace(result, targets=(replace(target, findings=target.findings * 2),))
    assert counted(judged(twice, known_from(result))) == ["GS105"]
    assert counted(judged(twice, known_from(twice))) == []
    assert len(judged(result, known_from(twice)).stale) == 1


@pytest.mark.parametrize("sample", ["no_graph", "backward_error"])
def test_a_run_that_could_not_be_judged_is_never_hidden(result_of, sample):
    result = result_of(sample)
    assert known_from(result).entries == ()
    other = known_from(changed(result_of("dead_unit"), rule=only(result).finding.rule))
    (entry,) = other.entries
    entry = replace(
        entry, target=target_key(result.targets[0]), fingerprint=only(result).finding.fingerprint
    )
    marked = judged(result, Baseline(entries=(entry,)))
    assert counted(marked) == [only(result).finding.rule]
    assert marked.stale == ()


def test_what_is_not_found_any_more_is_stale(result_of):
    result, clean = result_of("dead_unit"), result_of("dead_unit", ignore=())
    mended = replace(clean, targets=(replace(clean.targets[0], findings=()),))
    marked = judged(mended, known_from(result))
    assert marked.stale == (
        "GS105 dead-unit in sample_models/dead_unit.py, SparseFeatures.forward (target dead_unit)",
    )
    assert not marked.stale_fails
    assert judged(mended, known_from(result), is_strict=True).stale_fails
    assert not judged(result, known_from(result), is_strict=True).stale_fails
    assert pruned(known_from(result), mended).entries == ()
    assert pruned(known_from(result), result) == known_from(result)


def test_only_what_was_judged_can_be_stale(result_of):
    baseline = known_from(result_of("dead_unit"))
    other = result_of("unused_parameter")
    ignored = result_of("dead_unit", ignore=("GS105",))
    (target,) = result_of("dead_unit").targets
    empty = replace(target, findings=())
    failed = replace(empty, failures=(Failure(what="it took too long"),))
    broken = [replace(other, targets=(one,)) for one in (failed, replace(empty, runs=()))]
    for result in (other, ignored, *broken):
        assert judged(result, baseline, is_strict=True).stale == ()
        assert pruned(baseline, result) == baseline
        assert set(baseline.entries) <= set(updated(baseline, result).entries)


def test_what_another_finding_explains_now_is_not_stale(result_of):
    result = result_of("dead_unit")
    baseline = known_from(result)
    hidden = Consequence(rule="GS105", name="dead-unit", message="m")
    explained = changed(result, rule="GS102", fingerprint="r", consequences=(hidden,))
    assert judged(explained, baseline).stale == ()


def test_a_finding_of_some_seeds_is_only_stale_under_one_of_them(result_of, run_of):
    runs = [run_of("dead_unit", seed) for seed in range(3)]
    clean = [replace(run, verdict=replace(run.verdict, findings=())) for run in runs]

    def check(*some):
        return replace(result_of(), targets=(target_result("t", some),))

    sometimes = known_from(check(clean[0], runs[1], clean[2]))
    assert [entry.seeds for entry in sometimes.entries] == [(1,)]
    assert judged(check(clean[0]), sometimes).stale == ()
    assert len(judged(check(*clean), sometimes).stale) == 1
    always = known_from(check(*runs))
    assert [entry.seeds for entry in always.entries] == [()]
    assert len(judged(check(clean[0]), always).stale) == 1


def test_two_recordings_of_one_target_are_known_as_the_worse_of_both(result_of):
    result = result_of("dead_unit")
    (target,) = result.targets
    mild = changed(result, evidence=(("share", 0.7),), severity="note").targets[0]
    names = ["run-seed-0.gradscope", "run-seed-1.gradscope"]
    pair = tuple(replace(one, name=n) for one, n in zip((mild, target), names, strict=True))
    both = CheckResult(version="0", command="c", targets=pair)
    (entry,) = known_from(both).entries
    assert entry.level == "warning"
    assert entry.measure == ("share", 0.8125)
    assert counted(judged(both, known_from(both))) == []
    assert judged(replace(both, targets=pair[:1]), known_from(both)).stale == ()


@pytest.mark.parametrize(
    ("name", "root", "key"),
    [
        ("model.py", "/repo", "model.py"),
        ("./model.py:Net(hidden=8)", "/repo/src", "src/model.py:Net(hidden=8)"),
        ("../model.py", "/repo/src", "model.py"),
        ("/repo/src/model.py", "/repo", "src/model.py"),
        ("../elsewhere/model.py", "/repo", "../elsewhere/model.py"),
        ("small", "/repo/src", "small"),
        ("package.model:Net", "/repo/src", "package.model:Net"),
    ],
)
def test_a_target_has_one_name_in_every_folder_of_its_repository(run_of, name, root, key):
    run = run_of("dead_unit")
    record = replace(run.recording.target, root=root, repository="/repo", name="model.py")
    run = replace(run, recording=replace(run.recording, target=record))
    assert target_key(target_result(name, [run])) == key
    assert target_key(target_result("out.gradscope", [run])) == target_key(
        target_result("model.py", [run])
    )


def test_a_target_keeps_its_name_on_windows(run_of):
    run = run_of("dead_unit")
    record = replace(run.recording.target, root=r"C:\repo\src", repository=r"C:\repo")
    run = replace(run, recording=replace(run.recording, target=record))
    for name in ("model.py:Net", r"..\src\model.py:Net", r"C:\repo\src\model.py:Net"):
        assert target_key(target_result(name, [run])) == "src/model.py:Net"


def test_a_file_is_written_pruned_and_written_again(result_of, tmp_path):
    path = tmp_path / ".gradscope-baseline.json"
    dead, unused = result_of("dead_unit"), result_of("unused_parameter")
    write_baseline(path, dead)
    write_baseline(path, unused)
    both = path.read_bytes()
    assert {entry.rule for entry in read_baseline(path).entries} == {"GS105", "GS203"}
    write_baseline(path, judged(dead, read_baseline(path)))
    assert path.read_bytes() == both
    clean = replace(dead, targets=(replace(dead.targets[0], findings=()),))
    assert [entry.rule for entry in prune_baseline(path, clean).entries] == ["GS105"]
    assert [entry.rule for entry in read_baseline(path).entries] == ["GS203"]
    assert counted(judged(dead, read_baseline(path))) == ["GS105"]  # made again
    write_baseline(path, dead)
    assert path.read_bytes() == both


def test_limits_of_the_users_own_can_be_known_until_they_are_passed_farther(result_of):
    limits = SETTINGS["GS113"].norm_limits
    result = result_of("gradient_norm_limit", norm_limits=limits)
    item = only(result)
    assert only(judged(result, known_from(result))).is_known
    evidence = dict(item.finding.evidence)
    farther = changed(result, evidence=tuple((evidence | {"norm": evidence["norm"] * 2.1}).items()))
    assert "norm" in only(judged(farther, known_from(result))).worsened
