import torch

from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.state import Scopes
from gradscope.capture.training.steps.replaced_weights import SeenValues


def entries(number):
    gradient_state = GradientState()
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(number)]
    found = [gradient_state.add(parameter) for parameter in parameters]
    for index, entry in enumerate(found):
        entry.index = index
    return parameters, found


def test_every_set_has_one_place():
    _parameters, found = entries(4)
    scopes = Scopes()
    assert [scopes.location(found), scopes.location(found[:2]), scopes.location(found)] == [0, 1, 0]
    assert [one.parameters for one in scopes.take()] == [(0, 1, 2, 3), (0, 1)]
    assert scopes.take() == ()
    assert scopes.location(found[1:]) == 2
    assert [one.parameters for one in scopes.take()] == [(1, 2, 3)]


def test_nothing_has_no_place():
    assert Scopes().location([]) is None


def test_sets_that_are_new_every_time_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr("gradscope.capture.training.state._MOST", 3)
    _parameters, found = entries(4)
    scopes = Scopes()
    assert [scopes.location(found[:size]) for size in (1, 2, 3, 1)] == [0, 1, None, 0]


def values(number):
    return number.to_bytes(16, "little")


def test_all_values_are_known_again_and_hardly_any_others():
    seen = SeenValues()
    assert values(0) not in seen
    for number in range(100_000):
        seen.add([values(number)])
    assert all(values(number) in seen for number in range(100_000))
    others = sum(values(number) in seen for number in range(100_000, 120_000))
    assert others < 0.005 * 20_000  # a filter of two bits in 4 million expects 0.2 %
