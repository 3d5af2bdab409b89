"""An inspection neither disturbs its surroundings nor is disturbed by them."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import gradscope
from gradscope.capture.step.forward_backward import StepCapture


def squares(model, batch):
    return model(batch).square().sum()


def call_of(report, path):
    (row,) = (module for module in report.modules if module.path == path)
    (call,) = row.calls
    return call


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.flat, self.b = nn.Linear(16, 16), nn.Flatten(), nn.Linear(16, 4)
        self.seen = []

    def forward(self, x):
        hidden = self.a(x).view(8, 2, 8) * 1
        hidden.register_hook(lambda gradient: gradient * 10)
        flat = self.flat(hidden)
        flat.register_hook(lambda gradient: self.seen.append(gradient.norm().item()))
        return self.b(flat)


def test_gradient_of_a_view_is_measured_before_a_hook_changes_it():
    model = Hooked()
    report = gradscope.inspect(model, torch.randn(8, 16), squares, probe_steps=0)
    model(torch.zeros(8, 16))
    flat = call_of(report, "flat")
    assert flat.gain == pytest.approx(10)
    assert flat.output_grad_norm == pytest.approx(call_of(report, "b").input_grad_norm)


class Scaling(nn.Module):
    def forward(self, hidden):
        hidden.mul_(3)
        return hidden.tanh()


class ByKeyword(nn.Module):
    def __init__(self, by_keyword):
        super().__init__()
        self.a, self.k, self.by_keyword = nn.Linear(16, 16), Scaling(), by_keyword

    def forward(self, x):
        hidden = self.a(x)
        return self.k(hidden=hidden) if self.by_keyword else self.k(hidden)


def test_keyword_input_is_read_before_the_module_writes_into_it():
    batch, reports = torch.randn(8, 16), []
    for by_keyword in (True, False):
        torch.manual_seed(0)
        model = ByKeyword(by_keyword)
        reports.append(gradscope.inspect(model, batch, squares, probe_steps=0))
    keyword, positional = (call_of(report, "k").input_grad_norm for report in reports)
    assert keyword == positional


class Gate(nn.Module):
    def forward(self, hidden):
        return hidden.detach().tanh()


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.gate = nn.Linear(16, 16), Gate()

    def forward(self, x):
        hidden = self.a(x)
        return hidden * self.gate(hidden)


def test_input_that_a_call_makes_no_use_of_has_no_gradient_there():
    report = gradscope.inspect(Gated(), torch.randn(8, 16), squares, probe_steps=0)
    assert call_of(report, "gate").input_grad_norm is None
    assert call_of(report, "a").output_grad_norm is not None


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.teacher = nn.TransformerEncoder(layer, 2).eval()
        self.student = nn.Linear(16, 16)

    def forward(self, x):
        mask = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]).bool()
        with torch.no_grad():
            goal = self.teacher(x, src_key_padding_mask=mask)
        return (self.student(x) - goal).square().mean()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_fast_path_of_transformers_in_eval_mode_is_taken_as_without_gradscope():
    model, x = Distillation(), torch.randn(3, 5, 16)
    bare = model(x)
    capture = StepCapture(list(model.parameters()))
    with capture.forward():
        watched = model(x)
    assert torch.equal(bare, watched)


class WrittenAfterViewing(nn.Module):
    class Inner(nn.Module):
        def forward(self, view, base):
            left, right = base * 1.7, (base * 0.3).tanh()
            return left.sum() + right.square().sum() + (view * view.exp()).sum()

    def __init__(self):
        super().__init__()
        self.a, self.inner = nn.Linear(16, 16), self.Inner()

    def forward(self, x):
        base = self.a(x) * 1
        view = base[:]
        base.mul_(1.1)
        return self.inner(view, base)


def test_order_of_summation_is_kept_where_a_viewed_tensor_is_written_to():
    model = WrittenAfterViewing()
    for _ in range(10):
        x = torch.randn(64, 16)
        model.zero_grad()
        model(x).backward()
        bare = model.a.weight.grad
        model.zero_grad()
        capture = StepCapture(list(model.parameters()))
        with capture.forward():
            loss = model(x)
        capture.backward(loss)
        assert torch.equal(bare, model.a.weight.grad)


class StaleView(nn.Module):
    class Inner(nn.Module):
        def forward(self, hidden, unused):
            return hidden.tanh()

    def __init__(self):
        super().__init__()
        self.a, self.inner = nn.Linear(16, 16), self.Inner()

    def forward(self, x):
        hidden = self.a(x) * 1
        pieces = hidden.unbind(0)
        hidden.mul_(2)
        return self.inner(hidden, pieces)


def test_views_that_autograd_would_refuse_are_not_captured():
    report = gradscope.inspect(StaleView(), torch.randn(8, 16), squares, probe_steps=0)
    assert call_of(report, "inner").output_grad_norm is not None


def test_gradients_of_a_loss_with_parameters_are_restored_and_do_not_pile_up():
    torch.manual_seed(0)
    model, criterion, x = nn.Linear(16, 16), nn.Linear(16, 1), torch.randn(8, 16)

    def loss_fn(model, batch):
        return criterion(model(batch)).square().mean()

    loss_fn(model, x).backward()
    model.zero_grad()
    kept, values = criterion.weight.grad, criterion.weight.grad.clone()
    parameters = [*model.parameters(), *criterion.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2)
    report = gradscope.inspect(model, x, loss_fn, optimizer=optimizer)
    assert criterion.weight.grad is kept
    assert torch.equal(kept, values)
    real = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = loss_fn(model, x)
        loss.backward()
        optimizer.step()
        real.append(loss.item())
    assert [report.summary.loss, *(probe.loss for probe in report.probes)] == pytest.approx(real)


def test_graph_made_before_can_still_be_run_backward():
    model, x = (
        nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)),
        torch.randn(8, 16),
    )
    loss = squares(model, x)
    gradscope.inspect(model, x, squares)
    loss.backward()
    assert model[0].weight.grad is not None


def test_storage_is_the_same_after_a_forward_that_assigns_data():
    class Swapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x):
            self.a.weight.data = self.a.weight.data * 0.5
            return self.a(x)

    model = Swapping()
    position, values = model.a.weight.data_ptr(), model.a.weight.detach().clone()
    gradscope.inspect(model, torch.randn(2, 4), squares)
    assert model.a.weight.data_ptr() == position
    assert torch.equal(model.a.weight, values)


def test_expanded_buffer_with_nan_is_restored():
    class Expanded(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.register_buffer("gaps", torch.tensor([float("nan")]).expand(3, 4))

        def forward(self, x):
            return self.a(x)

    model = Expanded()
    gradscope.inspect(model, torch.randn(2, 4), squares)
    assert model.gaps.isnan().all()
    assert model.gaps.stride() == (0, 0)


def test_scheduler_is_still_warned_of_its_order():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    gradscope.inspect(model, torch.randn(2, 4), squares, optimizer=optimizer)
    with pytest.warns(UserWarning, match="lr_scheduler.step"):
        scheduler.step()


def test_list_that_holds_itself_does_no_harm():
    class Cyclic(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x, memory=None):
            return self.a(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Cyclic()

        def forward(self, x):
            memory = [x]
            memory.append(memory)
            return self.inner(x, memory)

    report = gradscope.inspect(Outer(), torch.randn(2, 4), squares, probe_steps=0)
    assert report.summary.none == 0


def test_state_of_a_loss_module_is_restored():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.norm = 0, nn.BatchNorm1d(4)

        def forward(self, output, target):
            self.calls += 1
            return (self.norm(output) - target).square().mean()

    loss_fn = Counting()
    before = loss_fn.norm.running_mean.clone()
    gradscope.inspect(nn.Linear(4, 4), (torch.randn(5, 4), torch.randn(5, 4)), loss_fn)
    assert loss_fn.calls == 0
    assert torch.equal(loss_fn.norm.running_mean, before)


def test_inference_mode_around_an_inspection_is_left_for_its_time():
    model, batch = nn.Linear(4, 4), torch.randn(5, 4)
    with torch.inference_mode():
        report = gradscope.inspect(model, batch, squares)
        assert torch.is_inference_mode_enabled()
    assert report.summary.none == 0


@pytest.mark.nightly
def test_showing_a_report_draws_no_random_number():
    # In a process of its own: rich, which draws some when it is imported, is imported here by now.
    code = """
import random, torch, gradscope
state = random.getstate()
report = gradscope.inspect(torch.nn.Linear(3, 2), torch.randn(4, 3), lambda output: output.sum())
repr(report), report._repr_html_(), report.to_json()
assert random.getstate() == state
"""
    subprocess.run([sys.executable, "-c", code], check=True)
