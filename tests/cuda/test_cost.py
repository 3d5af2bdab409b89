"""Cost of recording a GPT of 124 million parameters, in time and memory."""

import pytest

import gradscope
from tests.benchmarks.gpu_measures import peak, seconds
from tests.benchmarks.models import Step, gpt2_small

pytestmark = pytest.mark.slow

FIRST = 110
"""Steps of which the first hundred are measured, whatever it costs."""


@pytest.fixture
def step(device) -> Step:
    found = gpt2_small(device)
    for _ in range(5):
        found.bare()
    return found


def test_a_watched_training_takes_at_most_a_twentieth_longer(step):
    with gradscope.watch() as watch:
        seconds(step.bare, FIRST)
        watched = [seconds(step.bare, 20) for _ in range(5)]
    bare = [seconds(step.bare, 20) for _ in range(5)]
    assert sorted(watched)[2] / sorted(bare)[2] <= 1.05
    assert watch.steps == FIRST + 100


@pytest.mark.parametrize("options", [{}, {"budget": None, "tensor_every": 1}], ids=str)
def test_watching_takes_at_most_a_twentieth_more_memory(step, options):
    bare = peak(step.bare)
    with gradscope.watch(**options):
        watched = peak(step.bare)
    assert watched / bare <= 1.05


def test_an_inspection_takes_at_most_a_twentieth_more_memory(step):
    bare = peak(step.bare)
    model = step.model
    inspected = peak(
        lambda: gradscope.inspect(model, step.inputs, lambda *_: step.loss(), probe_steps=0), 1
    )
    assert inspected / bare <= 1.05
