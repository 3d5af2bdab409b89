import pytest
import torch
from torch import nn

import gradscope
from gradscope.errors import GradscopeError
from gradscope.recording.store import load_recording
from gradscope.recording.stored_gradient import cosine, relative_difference


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(80, 64), nn.Tanh(), nn.Linear(64, 2))
    return model, torch.randn(4, 80), torch.zeros(4, 2)


def inspected(**options):
    model, x, y = parts()
    return gradscope.inspect(model, (x, y), "mse", probe_steps=1, **options).recording


def numbers(record):
    return [x for values in record.values() for x in values]


def test_inspect_keeps_what_backward_left_in_the_judged_step(tmp_path):
    model, x, y = parts()
    report = gradscope.inspect(model, (x, y), "mse", keep_gradients="exact")
    nn.functional.mse_loss(model(x), y).backward()
    report.save(tmp_path / "a.gradscope")
    kept = load_recording(tmp_path / "a.gradscope").stored_gradients
    assert [numbers(one) for one in kept] == [p.grad.flatten().tolist() for p in model.parameters()]
    assert {one.step for one in kept} == {0}


def test_a_later_judged_step_is_the_one_that_is_stored():
    kept = inspected(steps=2, keep_gradients="exact")
    (judged,) = [step.index for step in kept.steps if step.kind == "step"]
    assert {one.step for one in kept.stored_gradients} == {judged} == {2}
    norms = {s.parameter: s.gradient.norm for s in kept.parameter_stats if s.step == judged}
    for one in kept.stored_gradients:
        assert sum(x * x for x in numbers(one)) ** 0.5 == pytest.approx(norms[one.parameter])


def test_inspecting_the_same_gives_the_same_gradients():
    for mode in ("exact", "sketch"):
        one, other = (inspected(keep_gradients=mode).stored_gradients for _ in range(2))
        assert [k.form for k in one] == [mode, "exact", "exact", "exact"]
        assert one == other
        assert [cosine(*pair) for pair in zip(one, other, strict=True)] == [1.0] * 4


def test_nothing_is_kept_unless_it_is_asked_for():
    assert inspected().stored_gradients == ()


def test_a_watch_keeps_gradients_too():
    model, x, y = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradscope.watch(keep_gradients="sketch", keep_gradients_every=2) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    kept = watch.report().recording.stored_gradients
    del watch  # and with it the file that nobody asked for
    assert [one.step for one in kept] == [0] * 4 + [2] * 4
    assert 0 < relative_difference(kept[0], kept[4]) < 1


@pytest.mark.parametrize("call", [inspected, gradscope.watch])
def test_other_words_are_refused(call):
    with pytest.raises(GradscopeError, match="keep_gradients is 'all', expected one of none, ex"):
        call(keep_gradients="all")


def test_a_watch_refuses_what_is_no_number_of_steps():
    with pytest.raises(GradscopeError, match="keep_gradients_every is 0, expected 1 or more"):
        gradscope.watch(keep_gradients_every=0)
