"""Every threshold of the rules about ranks: at the number that a real job holds, and beyond it."""

import dataclasses
import math
from pathlib import Path

import pytest

from gradscope.rules.catalogue import RULES
from gradscope.rules.engine import judge_job
from gradscope.rules.rule import family_of
from gradscope.rules.settings import Settings
from tests.nightly import some_on_push
from tests.rules.ranks.running import script
from tests.rules.ranks.test_local_norm_clip import FSDP1_CLIP, OWN_CLIP
from tests.rules.ranks.test_same_data_on_ranks import SHIFTED
from tests.rules.ranks.test_statistics_per_rank import SMALL_BN

SAMPLES = Path(__file__).parents[3] / "sample_models"

OWN_FACTOR = OWN_CLIP.replace("0.5 / norm", "0.5 + 0.25 * rank")
"""Whose factors differ by as much in every step."""

# Rule, threshold, script, the evidence that is held against it, and where the finding is kept:
# below the number, on it, and above it.
LIMITS = [
    ("uneven-ranks", "deviation", "uneven_ranks", "median_deviation", (True, False, False)),
    ("local-norm-clip", "tolerance", FSDP1_CLIP, "difference", (True, False, False)),
    ("local-norm-clip", "factors", OWN_FACTOR, "difference", (True, False, False)),
    ("same-data-on-ranks", "passes", "same_data_on_ranks", "passes_compared", (True, True, False)),
    ("same-data-on-ranks", "rows", SHIFTED.replace("<stride>", "1"), 15 / 16, (True, True, False)),
    ("statistics-per-rank", "rows", SMALL_BN, "rows_per_rank", (False, False, True)),
    ("wrong-rank-average", "share", "wrong_rank_average", 1.0, (True, True, False)),
    ("ranks-apart", "tolerance", "ranks_apart", math.inf, (True, True, True)),
]

QUIET = {("local-norm-clip", "tolerance"): {"factors": 1e9}}
"""Other thresholds of a rule, by which it would find the same mistake."""


def found(recordings, name, **thresholds):
    """Return what a rule finds under other thresholds."""
    code = next(rule.code for rule in RULES if rule.name == name)
    settings = Settings(select=(code,), thresholds={name: thresholds})
    return judge_job(recordings, settings).findings


@pytest.mark.parametrize(
    ("name", "field", "source", "number", "kept"), some_on_push(LIMITS[:-1], {0, 3, 4})
)
def test_a_threshold_decides_at_its_number(jobs, tmp_path, name, field, source, number, kept):
    path = script(source, tmp_path) if "\n" in source else SAMPLES / f"{source}.py"
    recordings = jobs.recordings(path, tmp_path / "job")
    if isinstance(number, str):
        evidence = [dict(one.evidence) for one in found(recordings, name)]
        number = evidence[0][number]
        # A rule takes the median, or at least half, of several steps.
        assert isinstance(number, int | float)
    is_whole = isinstance(number, int)
    around = (
        number - 1 if is_whole else number * 0.5,
        number,
        number + 1 if is_whole else number * 4.0,
    )
    others = QUIET.get((name, field), {})
    results = [bool(found(recordings, name, **others, **{field: one})) for one in around]
    assert (results[0], results[2]) == (kept[0], kept[2])


def test_replicas_count_as_equal_up_to_the_tolerance(jobs, tmp_path):
    recordings = jobs.recordings(SAMPLES / "ranks_apart.py", tmp_path / "job")
    (finding,) = found(recordings, "ranks-apart")
    assert finding.step == 1
    assert not found(recordings, "ranks-apart", tolerance=1.0)


def test_no_threshold_is_left_out():
    tested = {(case[0], case[1]) for case in LIMITS}
    rules = [rule for rule in RULES if family_of(rule.code) == "ranks"]
    assert tested == {(rule.name, one.name) for rule in rules for one in dataclasses.fields(rule)}
