import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.check.baseline_file import measure_of
from gradscope.rules.catalogue import RULES
from gradscope.rules.measurement import Measure
from gradscope.rules.settings import Settings
from tests.rules.inspecting import report_of_file
from tests.rules.test_samples import ABOUT_RANKS, SETTINGS, findings_of_job
from tests.rules.watching import findings_of_script

ROOT = Path(__file__).parents[2]
HIGHER = Measure(number="n")
LOWER = Measure(number="n", worse="lower")
DECADES = Measure(number="n", is_logarithm=True)
MEASURED = [rule for rule in RULES if rule.measures]


@pytest.mark.parametrize("rule", MEASURED, ids=[rule.code for rule in MEASURED])
def test_the_measure_of_a_rule_is_in_the_evidence_of_its_sample(
    rule, monkeypatch, tmp_path, request
):
    monkeypatch.chdir(ROOT)
    path = ROOT / "sample_models" / f"{rule.name.replace('-', '_')}.py"
    if rule in ABOUT_RANKS:
        findings = findings_of_job(request.getfixturevalue("jobs"), path, tmp_path)
    elif rule.needs_run:
        findings = findings_of_script(path, tmp_path)
    else:
        findings = report_of_file(path, settings=SETTINGS.get(rule.code, Settings())).findings
    for finding in findings:
        measured = measure_of(finding)
        assert measured is not None
        measure, value = measured
        # It has crossed its limit, on the side on which it gets worse.
        evidence = dict(finding.evidence)
        limits = [key for key in evidence if key.endswith("limit")]
        limit = evidence.get(measure.limit or next(iter(limits), ""))
        if isinstance(limit, float | int):
            assert not measure.is_worse(limit, value)


@pytest.mark.parametrize(
    ("measure", "known", "edge", "beyond"),
    [
        (HIGHER, 3.0, 6.0, 6.001),
        (HIGHER, -0.4, -0.2, -0.19),
        (HIGHER, 0.0, 0.0, 1e-9),
        (LOWER, 3.0, 1.5, 1.499),
        (LOWER, -0.4, -0.8, -0.81),
        (DECADES, 3.0, 3.0 + math.log10(2), 3.302),
        (DECADES, 0.1, 0.4, 0.402),
    ],
)
def test_worse_begins_beyond_the_factor(measure, known, edge, beyond):
    assert not measure.is_worse(edge, known, 2.0)
    assert measure.is_worse(beyond, known, 2.0)


@pytest.mark.parametrize("measure", [HIGHER, LOWER, DECADES])
def test_nan_is_worse_than_numbers_and_nothing_worse_than_nan(measure):
    assert measure.is_worse(math.nan, 1.0, 2.0)
    assert measure.is_worse(math.nan, math.inf, 2.0)
    assert not measure.is_worse(math.nan, math.nan, 2.0)
    assert not measure.is_worse(math.inf, math.nan, 2.0)


def test_infinity_is_worse_than_numbers_and_not_than_itself():
    assert HIGHER.is_worse(math.inf, 1e300, 2.0)
    assert not HIGHER.is_worse(math.inf, math.inf, 2.0)
    assert LOWER.is_worse(-math.inf, -1e300, 2.0)


@given(
    st.sampled_from([HIGHER, LOWER, DECADES]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1, 1e6),
)
def test_the_same_is_never_worse(measure, value, factor):
    assert not measure.is_worse(value, value, factor)
