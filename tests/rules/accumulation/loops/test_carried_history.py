"""GS309 points at the statement that stores what carries the graph of an earlier step."""

import inspect

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.accumulation.loops.carrying_loops import (
    LOOPS,
    STEPS,
    Cell,
    Keeps,
    batch,
    made,
    step,
)
from tests.rules.watching import findings_of


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def marked(code):
    """Return the line of the comment in the source, and the name that it tells."""
    lines, start = inspect.getsourcelines(code)
    ((number, name),) = [
        (number, line.partition("# GS309 ")[2].strip())
        for number, line in enumerate(lines, start)
        if "# GS309" in line
    ]
    return number, name


def told(loop, folder):
    return [one for one in findings_of(loop, folder) if one.rule == "GS309"]


@pytest.mark.parametrize(
    ("loop", "code"), some_on_push(LOOPS, 4), ids=[code.__name__ for _, code in LOOPS]
)
def test_it_points_at_what_stores_it(loop, code, tmp_path):
    number, name = marked(code)
    (found,) = told(loop, tmp_path)
    assert found.location.line == number
    assert name in dict(found.evidence)["carried"]
    assert "backward" in found.related[0].source


def test_a_backward_that_fails_is_told_at_what_stores_it(tmp_path):
    def loop():
        model, optimizer = made(Keeps())
        step(optimizer, model(batch()).pow(2).mean(), retain=False)
        with pytest.raises(RuntimeError, match="second time"):
            step(optimizer, model(batch()).pow(2).mean(), retain=False)

    (found,) = told(loop, tmp_path)
    assert found.location.line == marked(Keeps)[0]
    assert "detach" in found.remedy


def test_a_backward_that_fails_for_weights_that_a_step_has_changed(tmp_path):
    def loop():
        model, optimizer = made(nn.GRUCell(3, 4))
        hidden = torch.zeros(2, 4)
        with pytest.raises(RuntimeError, match="inplace"):
            for _ in range(3):
                hidden = model(batch(), hidden)
                step(optimizer, hidden.pow(2).mean())

    (found,) = told(loop, tmp_path)
    assert found.location.source == "hidden = model(batch(), hidden)"
    assert "hidden carries the graph of an earlier step" in found.message


def test_it_is_told_once(tmp_path):
    """A close look at the step tells of the same exception."""

    model, optimizer = made(Keeps())
    path = tmp_path / "run.gradscope"
    with pytest.raises(RuntimeError, match="second time"), gradscope.watch(save=path):
        for _ in range(2):
            step(optimizer, model(batch()).pow(2).mean(), retain=False)
    (found,) = judge(load_recording(path)).findings
    assert found.rule == "GS309"
    assert [one.rule for one in found.consequences] == ["GS502"]


@pytest.mark.nightly
def test_a_fake_batch_that_two_optimizers_use_carries_nothing(tmp_path):
    """The generator's backward goes through what was made before the critic's step."""

    def loop():
        generator, optimizer = made(nn.Linear(3, 3))
        critic, of_critic = made(nn.Linear(3, 1))
        for _ in range(STEPS):
            fake = generator(batch())
            of_critic.zero_grad()
            critic(fake.detach()).mean().backward()
            of_critic.step()
            optimizer.zero_grad()
            critic(fake).mean().backward()
            optimizer.step()

    path = tmp_path / "run.gradscope"
    assert not told(loop, tmp_path)
    assert not [one for one in load_recording(path).events if one.kind == "carried"]


def test_what_is_made_once_is_told_where_it_is_made(tmp_path):
    scale = nn.Parameter(torch.ones(()))
    model, optimizer = made(nn.Linear(3, 1))

    def loop():
        factor = scale.exp()
        for _ in range(2):
            step(optimizer, (model(batch()) * factor).mean(), retain=False)

    def watched():
        with pytest.raises(RuntimeError, match="second time"):
            loop()

    (found,) = told(watched, tmp_path)
    assert found.location.source == "factor = scale.exp()"
    assert found.remedy.startswith("recreate factor in every step")


def detached_state():
    model, optimizer = made(Cell())
    hidden, record = torch.zeros(2, 4), []
    for _ in range(STEPS):
        hidden = model(batch(), hidden.detach())
        loss = hidden.pow(2).mean()
        step(optimizer, loss, retain=False)
        record.append(loss)


def a_horizon_of_four_steps():
    model, optimizer = made(Cell())
    hidden = torch.zeros(2, 4)
    for position in range(STEPS):
        hidden = model(batch(), hidden)
        step(optimizer, hidden.pow(2).mean())
        if position % 4 == 3:
            hidden = hidden.detach()


@pytest.mark.parametrize("loop", some_on_push([detached_state, a_horizon_of_four_steps], 2))
def test_what_lets_go_is_fine(loop, tmp_path):
    assert not told(loop, tmp_path)


def test_the_dictionary_that_a_script_has_of_its_variables_stays_as_it_is(tmp_path):
    seen = []

    def loop():
        model, optimizer = made(nn.Linear(3, 1))
        total = torch.zeros(())
        options = locals()
        before = dict(options)
        for _ in range(3):
            total = total + model(batch()).pow(2).mean()
            step(optimizer, total)
        seen.append(options == before)

    told(loop, tmp_path)
    assert seen == [True]


class Asked(type):
    def __getattribute__(cls, name):
        raise AssertionError(f"{name} was asked for")


class Odd(metaclass=Asked):
    """Raises at whatever is asked of it."""

    def __getattribute__(self, name):
        raise AssertionError(f"{name} was asked for")


class OddList(list):
    def __iter__(self):
        raise AssertionError("it was iterated over")

    __len__ = __getitem__ = __iter__


def test_nothing_that_a_script_has_written_is_run_to_find_it(tmp_path):
    def loop():
        model, optimizer = made(nn.Linear(3, 1))
        odd, odd_list, endless = Odd(), OddList([1]), []
        endless.append(endless)
        model.odd = [odd, odd_list]
        total = torch.zeros(())
        for _ in range(STEPS):
            total = total + model(batch()).pow(2).mean()
            step(optimizer, total)

    (found,) = told(loop, tmp_path)
    assert dict(found.evidence)["carried"] == "total"
