"""Rules find the same in a training of which every step is kept, and of which only some are."""

import pytest

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.recording.thinning.room import Room
from tests.nightly import some_on_push
from tests.rules.kept_runs import outcomes, repeated, rewritten
from tests.rules.test_run_thresholds import ABOVE, COUNTS, SHARES

ROOM = Room(limit=2_000_000, recent=100, chunks=10, around=300)
"""Little enough that most steps become summaries."""

STEPS = 700

TRAININGS = {
    f"{name}-{field}": training for name, field, training, *_ in (*SHARES, *ABOVE, *COUNTS)
}
FIRST = {key.rpartition("-")[0]: position for position, key in reversed([*enumerate(TRAININGS)])}
"""The position of the first training of each rule; a push tests every third rule."""


@pytest.mark.parametrize("name", some_on_push(TRAININGS, [*FIRST.values()][::6]))
def test_the_findings_do_not_depend_on_what_is_kept(name, tmp_path):
    made = TRAININGS[name]()
    short = made if hasattr(made, "steps") else made.recording()
    whole = repeated(short, -(-STEPS // len(short.steps)))
    kept = rewritten(whole, tmp_path / "kept.gradscope", ROOM)
    steps = KeptSteps(kept)
    assert steps.missing > STEPS / 4
    if all(step.optimizer is not None for step in whole.steps):
        assert steps.total == len(whole.steps)
    assert outcomes(kept) == outcomes(whole)
