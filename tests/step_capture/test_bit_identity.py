"""A training with captured steps gives bit-identical results."""

import pytest

from tests.nightly import some_on_push
from tests.step_capture.loops_to_watch import LOOPS
from tests.step_capture.models_to_train import MODELS, STEPS, outcome, same

ALL = MODELS | LOOPS
A_PUSH = (
    "mlp",
    "checkpoint",
    "scaled",
    "meta_learning",
)
ON_PUSH = {position for position, name in enumerate(ALL) if name in A_PUSH}
"""One of each way in which autograd is used."""


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", some_on_push(ALL, ON_PUSH))
def test_a_training_is_the_same_to_the_last_bit(name, capture_steps):
    tensors, torch_state, python_state = outcome(ALL[name])
    seen = []
    made = capture_steps(lambda: seen.append(outcome(ALL[name])))
    ((watched, watched_torch, watched_python),) = seen
    assert len(tensors) == len(watched)
    assert all(map(same, tensors, watched))
    assert watched_torch == torch_state
    assert watched_python == python_state
    assert made.reasons == []
    assert made.recording.finished
    assert len(made.captured_steps) >= STEPS
    assert all(one.recording.tensor_stats for one in made.captured_steps)
