"""Non-finite values in steps that were not captured are attributed to their operation."""

import inspect
import math

import pytest
import torch
from torch import nn

from gradscope.recording.evidence.failures import LateCapture
from gradscope.rules.engine import judge
from gradscope.step_capture import singular_points
from tests.nightly import some_on_push
from tests.step_capture import broken_loops
from tests.step_capture.broken_loops import HEALTHY, IN_BACKWARD, IN_FORWARD, train


def only(recorded, code):
    """Return the one finding of a rule, with what is told of it by program."""
    (found,) = [one for one in judge(recorded.recording).findings if one.rule == code]
    return found, dict(found.evidence)


def line_in(loss_of):
    """Return the number of the line that breaks."""
    source, first = inspect.getsourcelines(loss_of)
    return first + next(i for i, line in enumerate(source) if line.endswith("# here\n"))


def late(recorded):
    return [one for one in recorded.captured_steps if one.recording.evidence_of(LateCapture)]


@pytest.mark.parametrize("name", some_on_push(IN_FORWARD, 10))
def test_the_operation_that_breaks_a_forward_is_reported_in_that_step(capture_steps, name):
    if "checkpoint" in name and not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"):
        pytest.skip("this torch does not tell which saved tensors lie behind a hook")
    loss_of = IN_FORWARD[name]
    found, evidence = only(capture_steps(lambda: train(loss_of, 5), tensor_every=100), "GS104")
    assert (found.step, found.location.line) == (5, line_in(loss_of))
    assert evidence["operation"] == name.split()[0]
    assert (evidence["line_is"], evidence["matched_step"]) == ("matched", 3)


@pytest.mark.parametrize("name", some_on_push(IN_BACKWARD, 4))
def test_the_operation_that_breaks_a_backward_is_reported_in_that_step(capture_steps, name):
    loss_of = IN_BACKWARD[name]
    found, evidence = only(capture_steps(lambda: train(loss_of, 5), tensor_every=100), "GS103")
    assert (found.step, found.location.line) == (5, line_in(loss_of))
    assert evidence["operation"].lower().startswith(name.split()[0].lower())
    assert evidence["line_is"] == "matched"
    assert len(found.parameters) == 4


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "loss_of", "at"),
    [
        pytest.param("GS103", broken_loops.root, 137, marks=pytest.mark.nightly),
        ("GS104", broken_loops.log_of_zero, 137),
        pytest.param("GS104", broken_loops.log_of_zero, 5_000, marks=pytest.mark.nightly),
    ],
)
def test_late_steps_are_no_different(capture_steps, code, loss_of, at):
    every = 100 if at > 1_000 else 1
    recorded = capture_steps(lambda: train(loss_of, at, after=1), tensor_every=0, every=every)
    found, _ = only(recorded, code)
    assert (found.step, found.location.line) == (at, line_in(loss_of))


@pytest.mark.nightly
@pytest.mark.parametrize("at", some_on_push([1, 5], {1}))
def test_a_later_micro_batch_breaks(capture_steps, at):
    loop = lambda: train(broken_loops.log_of_zero, at, passes=3, clips=True)  # noqa: E731
    found, evidence = only(capture_steps(loop, tensor_every=100), "GS104")
    assert (found.step, found.location.line) == (at, line_in(broken_loops.log_of_zero))
    assert evidence.get("line_is", "exact") == ("exact" if at == 1 else "matched")


@pytest.mark.nightly
def test_a_clip_between_breaks_nothing_of_it(capture_steps):
    found, _ = only(
        capture_steps(lambda: train(broken_loops.root, 5, clips=True), tensor_every=100), "GS103"
    )
    assert (found.step, found.location.line) == (5, line_in(broken_loops.root))
    assert "GS408" in {one.rule for one in found.consequences}


@pytest.mark.nightly
def test_a_scaler_that_never_gets_over_it_is_reported_with_the_reason(capture_steps):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    breaks = []

    def loss_of(net, x, is_late):
        breaks.append(is_late)
        return broken_loops.division(net, x, any(breaks))

    loop = lambda: train(loss_of, 5, after=30, scaler=scaler)  # noqa: E731
    found, _ = only(capture_steps(loop, tensor_every=100), "GS104")
    assert (found.step, found.location.line) == (5, line_in(broken_loops.division))


def test_a_scaler_that_looks_for_its_scale_is_healthy(capture_steps):
    def loop():
        net, scaler = broken_loops.model(), torch.amp.GradScaler("cpu", init_scale=2.0**24)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(14):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = net(torch.randn(16, 4)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    findings = judge(capture_steps(loop, tensor_every=100).recording).findings
    assert not {one.rule for one in findings} & {"GS103", "GS104"}


@pytest.mark.parametrize("name", some_on_push(HEALTHY, 2))
def test_healthy_code_that_looks_like_it_is_no_finding(capture_steps, name):
    recorded = capture_steps(lambda: train(HEALTHY[name], 5), tensor_every=100)
    assert not {one.rule for one in judge(recorded.recording).findings} & {"GS103", "GS104"}
    assert not late(recorded)


def test_a_weight_that_a_step_has_broken_is_reported_with_that_step(capture_steps):
    def loop():
        net = broken_loops.model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
        for step in range(9):
            optimizer.zero_grad()
            loss = 1e4 * net(torch.randn(16, 4)).square().mean()
            loss.backward()
            optimizer.param_groups[0]["lr"] = 3e38 if step == 5 else 1e-6
            optimizer.step()  # here

    found, _ = only(capture_steps(loop, tensor_every=100), "GS104")
    assert (found.step, found.location.line) == (6, line_in(loop))
    assert "step 5 wrote it with lr=3e38" in found.message


@pytest.mark.parametrize("at", some_on_push([5, 10], 2))
def test_a_weight_that_the_script_has_broken_is_not_blamed_on_the_step(capture_steps, at):
    """The update of step 10 is measured; that of step 5 is bounded by its gradients."""

    def loop():
        net = broken_loops.model()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for step in range(14):
            optimizer.zero_grad()
            net(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()  # here
            if step == at:
                with torch.no_grad():
                    next(net.parameters()).div_(0)

    found, _ = only(capture_steps(loop, tensor_every=100), "GS104")
    assert (found.step, found.severity) == (at + 1, "error")
    assert found.location.line != line_in(loop)
    assert f"although step {at} left it finite: the script wrote it later" in found.message
    assert "copy_()" in found.remedy


@pytest.mark.nightly
def test_a_weight_that_a_step_without_epsilon_has_broken_is_blamed_on_the_step(capture_steps):
    def loop():
        net = broken_loops.model().half()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-8)  # 0 in float16
        for step in range(9):
            optimizer.zero_grad()
            net(torch.randn(16, 4).half() * (step > 4)).float().square().mean().backward()
            optimizer.step()  # here

    found, _ = only(capture_steps(loop, tensor_every=100), "GS104")
    assert "wrote it with lr=0.001" in found.message
    assert found.location.line == line_in(loop)


@pytest.mark.nightly
def test_a_broken_row_of_an_embedding_is_reported_when_it_is_used(capture_steps):
    def loop():
        torch.manual_seed(0)
        table = nn.Embedding(10, 4)
        with torch.no_grad():
            table.weight[7] = math.nan
        net = nn.Sequential(table, nn.Linear(4, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(8):
            optimizer.zero_grad()
            words = torch.full((16,), 7 if step == 5 else step % 5)
            nn.functional.cross_entropy(net(words), words % 3).backward()
            optimizer.step()

    found, _ = only(capture_steps(loop, tensor_every=100), "GS104")
    assert found.step == 5
    assert "parameter net.0.weight holds NaN in 4 elements" in found.message
    assert "wrote it" not in found.message


@pytest.mark.nightly
def test_a_script_that_checks_its_loss_itself_is_reported_the_operation(capture_steps):
    def loop():
        net = broken_loops.model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(8):
            loss = broken_loops.log_of_zero(net, torch.randn(16, 4), step == 5)
            if not torch.isfinite(loss):
                raise ValueError("the loss is not finite")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    found, _ = only(capture_steps(loop, tensor_every=100, raises=ValueError), "GS104")
    assert (found.step, found.location.line) == (5, line_in(broken_loops.log_of_zero))


@pytest.mark.nightly
def test_one_of_several_losses_breaks(capture_steps):
    def loop():
        net = broken_loops.model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(7):
            x = torch.randn(16, 4)
            losses = [net(x).square().mean(), broken_loops.log_of_zero(net, x, step == 5)]
            optimizer.zero_grad()
            torch.autograd.backward(losses)
            optimizer.step()

    recorded = capture_steps(loop, tensor_every=100)
    found = min(
        (one for one in judge(recorded.recording).findings if one.rule == "GS104"),
        key=lambda one: one.step,
    )
    assert (found.step, found.location.line) == (5, line_in(broken_loops.log_of_zero))


@pytest.mark.nightly
def test_an_operation_that_no_captured_step_had_is_reported_with_what_comes_before(capture_steps):
    def loss_of(net, x, breaks):
        out = net(x)
        before = out.square()  # here
        if breaks:
            before = before * 1e30
            before = before * 1e30
        return before.mean()

    found, evidence = only(capture_steps(lambda: train(loss_of, 5), tensor_every=100), "GS104")
    assert (found.step, found.location.line) == (5, line_in(loss_of))
    assert (evidence["operation"], evidence["line_is"]) == ("mul", "after")


@pytest.mark.nightly
def test_hooks_of_the_scripts_own_are_not_called_for_it(capture_steps):
    unpacked = []

    def loop():
        def pack(tensor):
            return tensor

        def unpack(tensor):
            unpacked.append(torch._C._current_graph_task_id())
            return tensor

        def loss_of(net, x, breaks):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return broken_loops.log_of_zero(net, x, breaks)

        train(loss_of, 5)

    recorded = capture_steps(loop, tensor_every=100)
    assert late(recorded)
    assert -1 not in unpacked


@pytest.mark.nightly
def test_a_break_that_nobody_saw_coming_is_inferred_from_the_parameters_it_reached(
    capture_steps, monkeypatch
):
    monkeypatch.setattr(singular_points, "_FREE", 0.0)
    monkeypatch.setattr(singular_points, "_SHARE", 0.0)

    def loop():
        torch.manual_seed(0)
        net = nn.ModuleDict({"sick": nn.Linear(4, 4), "sound": nn.Linear(4, 4)})
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(8):
            x = torch.randn(16, 4)
            length = (net["sick"](x) * (0.0 if step == 5 else 1.0)).square().sum(1).sqrt()  # here
            ratio = (net["sound"](x).square() + 1).log()
            optimizer.zero_grad()
            (length.mean() + ratio.mean()).backward()
            optimizer.step()

    found, evidence = only(capture_steps(loop, tensor_every=0), "GS103")
    assert (found.step, found.location.line) == (5, line_in(loop))
    assert (evidence["operation"], evidence["operation_is"]) == ("SqrtBackward0", "inferred")
    assert set(found.parameters) == {"net['sick'].weight", "net['sick'].bias"}
