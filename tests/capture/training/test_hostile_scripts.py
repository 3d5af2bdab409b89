"""Hostile scripts behave as without gradscope, and the recording stays complete."""

import copy
import functools
import gc
import inspect
import io
import os
import pickle
import signal
import sqlite3
import sys
import threading
from weakref import ref

import pytest
import torch
from torch import nn

from gradscope.capture.training.steps.steps import Steps
from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.run_recorder import RunRecorder
from gradscope.recording.store import load_recording


def train(model, steps=1, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
    return optimizer


@pytest.fixture(name="model")
def _model():
    return nn.Linear(3, 2)


@pytest.fixture(name="watch")
def _watch(tmp_path):
    watch = TrainingWatch(tmp_path / "run.gradscope", "gradscope run train.py")
    watch.start()
    yield watch
    watch.stop()


def test_what_is_patched_looks_as_before(watch, model):
    assert list(inspect.signature(torch.optim.Optimizer.zero_grad).parameters) == [
        "self",
        "set_to_none",
    ]
    clip = torch.nn.utils.clip_grad_value_
    assert pickle.loads(pickle.dumps(clip)) is clip
    optimizer = train(model)
    again = pickle.loads(pickle.dumps(optimizer))
    assert again.state_dict() == optimizer.state_dict()
    assert pickle.loads(pickle.dumps(model)).state_dict().keys() == model.state_dict().keys()
    assert vars(copy.deepcopy(model)).keys() == vars(nn.Linear(3, 2)).keys()


@pytest.fixture(name="swapping")
def _swapping():
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.usefixtures("swapping")
def test_torch_swaps_the_tensors_of_parameters(watch, model):
    """`Module.to` does so with models that `fully_shard` has sharded."""
    train(model, 3)
    old = ref(model.weight)
    with pytest.raises(RuntimeError, match="swap"):  # for the script's own reference
        model.double()
    del old
    model.double()
    assert model.weight.dtype == torch.float64
    model.float()
    train(model, 2)
    watch.stop()
    model.double()
    assert watch.steps == 5


class OfAnOldScript(nn.Module):
    """Its methods have the arguments of an older torch, and leave some parameters out."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def named_modules(self, memo=None, prefix=""):
        raise RuntimeError("the script never asks for these")

    def named_parameters(self, prefix=""):
        yield from self.head.named_parameters(prefix)

    def parameters(self):
        for _, parameter in self.named_parameters():
            yield parameter

    def forward(self, x):
        return self.head(self.body(x))


def test_modules_of_an_old_script_are_recorded_by_their_own_names(watch, tmp_path, capsys):
    train(OfAnOldScript(), steps=2)
    watch.stop()
    assert capsys.readouterr().err == ""
    recording = load_recording(tmp_path / "run.gradscope")
    names = {one.name for one in recording.parameters}
    assert names == {
        f"model.{layer}.{kind}" for layer in ("body", "head") for kind in ("weight", "bias")
    }


def test_exceptions_pass_through_and_the_next_step_is_observed(watch, model):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("in backward")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def raise_(*_):
        raise KeyError("in step")

    with pytest.raises(ValueError, match="in backward"):
        Broken.apply(model(torch.randn(4, 3))).sum().backward()
    with pytest.raises(RuntimeError):
        model(torch.randn(4, 5))
    with pytest.raises(RuntimeError, match="scalar"):
        model(torch.randn(4, 3)).backward()
    handle = optimizer.register_step_pre_hook(raise_)
    with pytest.raises(KeyError):
        train(model, optimizer=optimizer)
    handle.remove()
    train(model, steps=2, optimizer=optimizer)
    assert watch.steps == 2


def test_a_backward_within_a_backward_is_part_of_it(watch, model, tmp_path):
    def inner(gradient):
        with torch.enable_grad():
            x = torch.ones(2, requires_grad=True)
            x.square().sum().backward()
        return gradient

    out = model(torch.randn(4, 3))
    out.register_hook(inner)
    out.mean().backward()
    watch.stop()
    events = load_recording(tmp_path / "run.gradscope").events
    assert [event.kind for event in events] == ["backward"]


class TimeLimitError(Exception):
    """Raised by a handler of the script's."""


@pytest.mark.parametrize("is_by_hand", [False, True])
@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TimeLimitError)],
)
def test_a_signal_while_a_step_is_written_reaches_the_script_after_it(
    number, raised, is_by_hand, watch, model, monkeypatch, tmp_path
):
    def handle(*_):
        raise raised

    def add(recorder, step):
        own(recorder, step)
        if next(interrupts):
            signal.raise_signal(number)

    def by_hand():
        for _ in range(4):
            model(torch.ones(4, 3)).square().mean().backward()
            with torch.no_grad():
                for one in model.parameters():
                    one -= 0.1 * one.grad
                    one.grad = None

    own, interrupts = RunRecorder.add, iter([False, True, *[False] * 20])
    monkeypatch.setattr(RunRecorder, "add", add)
    before = signal.signal(number, handle)
    loop = by_hand if is_by_hand else lambda: train(model, 4)
    try:
        with pytest.raises(raised):
            loop()
        loop()
        assert signal.getsignal(number) is handle
    finally:
        signal.signal(number, before)
    watch.stop()
    recording = load_recording(tmp_path / "run.gradscope")
    assert recording.finished
    assert len(recording.steps) >= 5


def test_threads_may_train_one_after_the_other(watch):
    for _ in range(3):
        thread = threading.Thread(target=train, args=(nn.Linear(3, 2), 5))
        thread.start()
        thread.join()
    assert watch.steps == 15


def test_threads_that_train_at_once_are_left_alone(watch, capsys):
    made = []

    def work():
        made.append(train(nn.Linear(64, 64), steps=200))

    def train(model, steps):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(64, 64)).square().mean().backward()
            optimizer.step()
        return steps

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [200] * 4
    assert capsys.readouterr().err.count("several threads train at the same time") <= 1


def test_another_thread_may_evaluate_meanwhile(watch, model):
    stop = threading.Event()
    other = nn.Linear(3, 2)

    def evaluate():
        while not stop.is_set():
            with torch.no_grad():
                other(torch.randn(4, 3))

    thread = threading.Thread(target=evaluate)
    thread.start()
    train(model, steps=50)
    stop.set()
    thread.join()
    assert watch.steps == 50


def test_a_fault_of_ours_is_reported_once_and_the_script_goes_on(watch, model, capsys, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a bug")

    train(model)
    monkeypatch.setattr(watch._running._writer, "write", fail)
    train(model, steps=3)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("recording ended") == 1
    assert "ZeroDivisionError: a bug" in told.err
    assert watch.steps == 1


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarms")
@pytest.mark.parametrize("wrap", [lambda handler: handler, functools.partial])
def test_what_a_handler_of_a_signal_raises_reaches_the_script(
    wrap, watch, model, capsys, monkeypatch
):
    def time_is_over(*_):
        raise TimeoutError("time is over")

    before = signal.signal(signal.SIGALRM, wrap(time_is_over))
    try:
        train(model)
        end = Steps._end
        monkeypatch.setattr(
            Steps, "_end", lambda *args: (signal.raise_signal(signal.SIGALRM), end(*args))
        )
        with pytest.raises(TimeoutError, match="time is over"):
            train(model)
        train(model)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert capsys.readouterr().err.count("recording ended") == 1


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_the_script_goes_on_where_the_recording_cannot_even_end(
    stderr, watch, model, monkeypatch, capsys
):
    def fail(*_):
        raise sqlite3.OperationalError("locking protocol")

    train(model)
    running = watch._running
    monkeypatch.setattr(running._writer, "write", fail)
    monkeypatch.setattr(running._writer._recorder._writer, "transaction", fail)
    broken = io.StringIO() if stderr else None
    if broken is not None:
        broken.close()
    with monkeypatch.context() as context:
        context.setattr(sys, "stderr", broken)
        train(model, steps=3)
    assert not running._guard.active
    assert capsys.readouterr() == ("", "")


@pytest.mark.nightly
def test_a_full_disk_is_reported_once_and_keeps_the_steps_before(tmp_path, model, capsys):
    path = tmp_path / "run.gradscope"
    watch = TrainingWatch(path, "gradscope run train.py")
    watch.start()
    train(model, steps=2)
    connection: sqlite3.Connection = watch._running._writer._recorder._writer._connection
    connection.execute("PRAGMA max_page_count = 1")
    train(nn.Linear(3, 2), steps=3000)
    watch.stop()
    assert capsys.readouterr().err.count("recording ended") == 1
    found = load_recording(path)
    assert len(found.steps) >= 2
    assert not found.finished


def test_the_recording_is_readable_while_the_run_goes_on(watch, model, tmp_path):
    train(model, steps=3)
    found = load_recording(tmp_path / "run.gradscope")
    assert len(found.steps) == 3
    assert not found.finished


def test_a_forked_process_is_left_alone(watch, model, tmp_path):
    train(model)
    child = os.fork()
    if not child:
        try:
            train(model, steps=5)
            watch.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    train(model)
    watch.stop()
    found = load_recording(tmp_path / "run.gradscope")
    assert (len(found.steps), found.finished) == (2, True)


def test_recording_ends_after_so_many_steps_and_the_script_goes_on(tmp_path, model):
    path = tmp_path / "run.gradscope"
    watch = TrainingWatch(path, "gradscope run train.py", every=2, max_steps=3)
    watch.start()
    train(model, steps=5)
    assert watch.steps == 3
    watch.stop()
    found = load_recording(path)
    assert (len(found.steps), found.finished) == (3, True)
    assert {stat.step for stat in found.parameter_stats} == {0, 2}


def test_what_the_callback_raises_comes_out_of_the_step(tmp_path, model):
    class Stop(BaseException):
        pass

    def stop(steps):
        if steps == 2:
            raise Stop

    watch = TrainingWatch(tmp_path / "run.gradscope", "gradscope run train.py", on_step=stop)
    watch.start()
    with pytest.raises(Stop):
        train(model, steps=5)
    watch.stop()
    assert len(load_recording(tmp_path / "run.gradscope").steps) == 2


def test_nothing_of_the_script_is_kept_alive(watch):
    model = nn.Linear(3, 2)
    optimizer = train(model, steps=3)
    output = model(torch.randn(4, 3)).mean()
    output.backward()
    gradient = model.weight.grad
    kept = [ref(one) for one in (model, optimizer, output, gradient, model.weight)]
    del model, optimizer, output, gradient
    gc.collect()
    assert [one() for one in kept] == [None] * 5


def test_compiled_models_run_with_their_names(watch, model, tmp_path):
    compiled = torch.compile(model, backend="eager")
    train(compiled, steps=3)
    watch.stop()
    found = load_recording(tmp_path / "run.gradscope")
    assert len(found.steps) == 3
    assert [p.name for p in found.parameters] == ["model.weight", "model.bias"]
    assert any("compile" in note.reason for note in found.skipped)
