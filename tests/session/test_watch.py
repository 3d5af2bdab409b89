"""Records training loops from Python."""

import gc
import random
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import gradscope
from gradscope.capture.training.watch import TrainingWatch
from gradscope.errors import GradscopeError
from gradscope.recording.store import load_recording
from tests.nightly import some_on_push


def made():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model, optimizer, steps=5, *, zeroes=True):
    for _ in range(steps):
        if zeroes:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4))
        loss.backward()
        optimizer.step()


def test_a_healthy_loop_has_no_findings():
    with gradscope.watch() as watch:
        train(*made(), steps=20)
    report = watch.report()
    assert watch.steps == 20
    assert report.findings == watch.findings == ()
    assert report.rules.ran
    assert report.target.name == Path(__file__).name
    assert len(report.parameters) == 4


def test_a_loop_that_never_zeroes_is_reported_at_its_line():
    with gradscope.watch() as watch:
        train(*made(), zeroes=False)
    (finding,) = [one for one in watch.findings if one.severity == "error"]
    assert finding.location is not None
    assert Path(finding.location.file) == Path(__file__)
    assert finding.location.source == "loss.backward()"


def test_the_steps_so_far_are_reported_inside_of_the_block():
    model, optimizer = made()
    with gradscope.watch() as watch:
        with pytest.raises(GradscopeError, match="no optimizer has stepped yet"):
            watch.report()
        train(model, optimizer, 2)
        first = watch.report()
        assert watch.report() is first
        train(model, optimizer, 3, zeroes=False)
        assert [len(first.recording.steps), len(watch.report().recording.steps)] == [2, 5]
        assert watch.findings
    assert watch.report().recording.finished


def test_start_and_stop():
    watch = gradscope.watch()
    with pytest.raises(GradscopeError, match="has not been started"):
        watch.report()
    watch.stop()
    assert watch.start() is watch
    with pytest.raises(GradscopeError, match="has been started already"):
        watch.start()
    train(*made())
    watch.stop()
    watch.stop()
    assert len(watch.report().recording.steps) == 5
    with pytest.raises(GradscopeError, match="has been stopped already"):
        watch.start()


def test_nothing_seen_is_no_clean_report():
    with gradscope.watch() as watch:
        pass
    with pytest.raises(GradscopeError, match="backward was not called"):
        watch.report()
    assert watch._repr_html_() is None
    assert repr(watch) == "<gradscope.watch: stopped, steps: 0>"


def test_what_is_given_is_named_as_it_is_given():
    net, solver = made()
    with gradscope.watch(net, optimizer=solver) as watch:
        train(net, solver)
    recording = watch.report().recording
    assert {one.name.split(".")[0] for one in recording.parameters} == {"net"}
    (step, *_) = [one for one in recording.events if one.kind == "step"]
    assert step.subject == "solver"


@pytest.mark.nightly
def test_the_line_of_an_optimizer_that_was_made_before():
    network = nn.Linear(8, 4)
    adam = torch.optim.Adam(network.parameters())
    with gradscope.watch(network, adam) as watch:
        train(network, adam, 2)
    recording = watch.report().recording
    from gradscope.recording.evidence.training import TrainedOptimizer

    (optimizer,) = recording.evidence_of(TrainedOptimizer)
    assert recording.sites[optimizer.site].source == "adam = torch.optim.Adam(network.parameters())"


@pytest.mark.nightly
@pytest.mark.parametrize("is_given", some_on_push([False, True], 2))
def test_a_training_that_went_on_before_is_no_trouble(is_given):
    model, optimizer = made()
    train(model, optimizer, 3)
    with gradscope.watch(*((model, optimizer) if is_given else ())) as watch:
        train(model, optimizer, 10)
    assert watch.findings == ()


def test_exceptions_pass_through_and_what_was_seen_is_stored():
    with pytest.raises(ZeroDivisionError), gradscope.watch() as watch:
        train(*made(), 3)
        _ = 1 / 0
    assert len(watch.report().recording.steps) == 3


def test_there_is_one_watch_at_a_time():
    with gradscope.watch() as outer:
        train(*made(), 2)
        inner = gradscope.watch()
        with pytest.raises(GradscopeError, match="another watch is active"):
            inner.start()
        train(*made(), 1)
    assert outer.steps == 3
    with inner:
        train(*made(), 1)
    assert inner.steps == 1


def test_a_watch_within_gradscope_run_says_so(tmp_path):
    running = TrainingWatch(tmp_path / "run.gradscope", "gradscope run train.py")
    running.start()
    try:
        with (
            pytest.raises(GradscopeError, match="gradscope run already records"),
            gradscope.watch(),
        ):
            pass
    finally:
        running.stop()


@pytest.mark.nightly
def test_a_watch_that_is_dropped_has_ended():
    watch = gradscope.watch().start()
    path = watch._path
    train(*made(), 1)
    assert path.exists()
    del watch
    gc.collect()
    assert not path.exists()
    with gradscope.watch() as watch:  # as when a notebook's cell is run again
        train(*made(), 1)
    assert watch.steps == 1


@pytest.mark.nightly
def test_the_recording_is_kept_where_it_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with gradscope.watch(save="kept.gradscope", every=2) as watch:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        train(*made(), 4)
    saved = load_recording(tmp_path / "kept.gradscope")
    assert saved == watch.report().recording
    assert {one.step for one in saved.parameter_stats} == {0, 2}
    with pytest.raises(GradscopeError, match="exists"):
        gradscope.watch(save=tmp_path / "kept.gradscope")
    with gradscope.watch(save=tmp_path / "kept.gradscope", force=True):
        train(*made(), 1)
    assert len(load_recording(tmp_path / "kept.gradscope").steps) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, "model is of type int, expected Module"),
        ({"optimizer": nn.Linear(1, 1)}, "optimizer is of type Linear, expected Optimizer"),
        ({"every": 0}, "every is 0, expected 1 or more"),
        ({"every": True}, "every is True"),
        ({"select": "GS999"}, "GS999"),
    ],
)
def test_wrong_arguments_are_reported_at_once(arguments, message):
    with pytest.raises(GradscopeError, match=message):
        gradscope.watch(**arguments)


def test_rules_can_be_chosen():
    with gradscope.watch(ignore="GS3") as watch:
        train(*made(), zeroes=False)
    assert not [one for one in watch.findings if one.rule.startswith("GS3")]


def test_the_training_is_the_same_to_the_last_bit():
    def outcome(watched):
        torch.manual_seed(0)
        random.seed(0)
        model, optimizer = made()
        if watched:
            with gradscope.watch(model, optimizer) as watch:
                train(model, optimizer, 5)
                repr(watch.report())
                train(model, optimizer, 5)
        else:
            train(model, optimizer, 10)
        return [*model.state_dict().values(), torch.get_rng_state()], random.getstate()

    (plain, plain_state), (watched, watched_state) = outcome(False), outcome(True)
    assert all(map(torch.equal, plain, watched))
    assert plain_state == watched_state


def test_a_notebook_shows_the_report():
    source = "net = made()\nwith gradscope.watch(net[0]) as watch:\n    train(*net, zeroes=False)\n"
    scope = {"gradscope": gradscope, "made": made, "train": train}
    exec(compile(source, "<ipython-input-3-0123456789ab>", "exec"), scope)
    watch = scope["watch"]
    assert watch._repr_html_() == watch.report()._repr_html_()
    assert "GS3" in watch._repr_html_()
    assert "4 parameters" in watch._repr_html_()
    assert watch.report().target.name == "notebook"


@pytest.mark.nightly
def test_names_are_known_where_there_is_no_source():
    scope = {"gradscope": gradscope, "train": train}
    scope["net"], scope["solver"] = made()
    source = "with gradscope.watch(net, solver) as watch:\n    train(net, solver)\n"
    exec(compile(source, "<stdin>", "exec"), scope)
    recording = scope["watch"].report().recording
    assert {one.name.split(".")[0] for one in recording.parameters} == {"net"}
    assert {one.subject for one in recording.events if one.kind == "step"} == {"solver"}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="the compiler needs one")
@pytest.mark.parametrize("is_called", some_on_push([True, False], 2))
def test_models_that_were_compiled_before_are_not_hooked(is_called):
    model, optimizer = made()
    compiled = torch.compile(model, backend="eager")
    if is_called:
        train(compiled, optimizer, 1)
        torch.compiler.reset()  # it is compiled again
    with gradscope.watch() as watch:
        train(compiled, optimizer, 3)
    assert len(watch.report().recording.steps) == 3
    assert any("torch.compile" in one.reason for one in watch.report().skipped)
