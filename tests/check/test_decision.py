from dataclasses import replace

import pytest

from gradscope.check.options import Policy
from gradscope.check.results import (
    CheckResult,
    Failure,
    TargetResult,
    exit_code,
    outcome_of,
    reasons,
)
from gradscope.errors import ExitCode

LEVELS = ("error", "warning", "note")
SAMPLES = {
    "error": "exploding_stack",
    "warning": "unused_parameter",
    "note": "frozen_parameter_in_optimizer",
}


def code_of(result, **policy):
    return exit_code(replace(result, policy=Policy(**policy)))


@pytest.mark.parametrize("found", LEVELS)
@pytest.mark.parametrize("fail_level", LEVELS)
def test_findings_at_or_above_the_level_fail(result_of, found, fail_level):
    result = result_of(SAMPLES[found])
    assert result.counts()[found] == 1
    is_failed = LEVELS.index(found) <= LEVELS.index(fail_level)
    assert code_of(result, fail_level=fail_level) == is_failed
    assert bool(list(reasons(replace(result, policy=Policy(fail_level=fail_level))))) == is_failed
    assert code_of(result, fail_level=fail_level, exit_zero=True) is ExitCode.OK


@pytest.mark.parametrize(("limit", "code"), [(0, 1), (1, 1), (2, 0), (None, 0)])
def test_more_warnings_than_allowed_fail_over_all_targets(result_of, limit, code):
    result = result_of("unused_parameter", "dead_unit")
    assert result.counts() == {"error": 0, "warning": 2, "note": 0}
    assert code_of(result, max_warnings=limit) == code


def test_known_findings_do_not_count(result_of):
    result = result_of("exploding_stack")
    (target,) = result.targets
    known = replace(target, findings=tuple(replace(one, is_known=True) for one in target.findings))
    hidden = replace(result, targets=(known,))
    assert exit_code(result) is ExitCode.FINDINGS
    assert exit_code(hidden) is ExitCode.OK
    assert outcome_of(known, hidden) == "passed"


@pytest.mark.parametrize("exit_zero", [False, True])
def test_what_could_not_be_judged_is_never_green(result_of, exit_zero):
    broken = TargetResult(name="b", failures=(Failure(what="cannot open 'b.py'"),))
    result = result_of("healthy_mlp")
    both = replace(result, targets=(*result.targets, broken))
    assert code_of(both, exit_zero=exit_zero) is ExitCode.CANNOT_JUDGE
    failed = result_of("exploding_stack")
    worse = replace(failed, targets=(*failed.targets, broken))
    assert code_of(worse, exit_zero=exit_zero) is ExitCode.CANNOT_JUDGE


def test_a_check_of_nothing_is_not_green():
    empty = CheckResult(version="0", command="", targets=(), policy=Policy())
    assert exit_code(empty) is ExitCode.CANNOT_JUDGE
    unrun = replace(empty, targets=(TargetResult(name="a"),))
    assert exit_code(unrun) is ExitCode.CANNOT_JUDGE


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_stale_entries_fail_where_the_baseline_is_strict(result_of, fails, code):
    result = replace(result_of("healthy_mlp"), stale=("GS101 in a.py",), stale_fails=fails)
    assert exit_code(result) == code
