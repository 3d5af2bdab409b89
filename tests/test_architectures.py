"""gradscope against torch itself, on every architecture of the test bed."""

import random

import numpy
import pytest
import torch
from torch import Tensor

import gradscope
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.target.options import Trial
from tests.architectures import ARCHITECTURES, built, forward_loss
from tests.nightly import some_on_push
from tests.rules.tally import Tally, errors

STEPS = 2

CUT_IN_EARNEST = "frozen_and_unused"
"""One of its layers is detached, and learns nothing."""

every_architecture = pytest.mark.parametrize(
    "case",
    some_on_push([pytest.param(case, id=case.name) for case in ARCHITECTURES], 10),
    scope="module",  # the tests of one architecture follow each other and share its training
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Sums in one order: two plain steps are then equal bit for bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def values(gradient: Tensor) -> Tensor:
    """The elements of a gradient in the widest type of its kind, those of a sparse one summed."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def state_of(model) -> dict[str, object]:
    """All that an inspection must leave alone, by name."""
    state: dict[str, object] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        state[name] = tensor.detach().clone()
        state[f"{name} .grad"] = tensor.grad
        state[f"{name} requires_grad"] = tensor.requires_grad
        state[f"{name} hooks"] = bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)
    for path, module in model.named_modules():
        state[f"{path} training"] = module.training
        state[f"{path} attributes"] = sorted(vars(module))
        state[f"{path} hooks"] = [
            len(hooks)
            for hooks in (
                module._forward_hooks,
                module._forward_pre_hooks,
                module._backward_hooks,
                module._backward_pre_hooks,
            )
        ]
    state["torch's random state"] = torch.get_rng_state()
    state["random's random state"] = random.getstate()
    state["numpy's random state"] = numpy.random.get_state(legacy=False)["state"]["key"].tolist()
    return state


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [name for name in before.keys() | after.keys() if not same(before, after, name)]


def same(before: dict[str, object], after: dict[str, object], name: str) -> bool:
    if name not in before or name not in after:
        return False
    old, new = before[name], after[name]
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return torch.equal(old.to_dense(), new.to_dense())
    return old == new


@pytest.fixture(scope="module")
def plain(case) -> dict[str, object]:
    """The training of an architecture by torch alone."""
    return train(case, watch=False)


@pytest.fixture(scope="module")
def tally():
    return Tally()


@every_architecture
def test_inspection_gives_the_gradients_of_plain_backward_and_accuses_nothing(case, plain, tally):
    model, batch = built(case)
    before = state_of(model)
    report = gradscope.inspect(model, batch, case.loss)

    assert differences(before, state_of(model)) == []
    assert report.summary.loss == plain["loss 0"].item()
    assert [row.name for row in report.parameters] == [name for name, _ in model.named_parameters()]
    for row in report.parameters:
        check_parameter(row, plain[f"{row.name} 0"])
    was_skipped = any("probing" in each.what for each in report.skipped)
    assert len(report.probes) == (0 if was_skipped else Trial().probe_steps)
    if case.name != CUT_IN_EARNEST:
        tally.add(case.name, model, report.findings)
        assert errors(report.findings) == []


def check_parameter(row, gradient: Tensor | None) -> None:
    """Compare a parameter of a report with the gradient that torch leaves in it."""
    if gradient is None:
        assert row.grad is None, row.name
        assert row.reach == ("none" if row.requires_grad else "frozen"), row.name
        assert row.reason or row.reach == "frozen", row.name
        return
    expected = values(gradient)
    assert row.grad is not None, row.name
    assert row.grad.norm == pytest.approx(expected.norm().item(), rel=1e-6, abs=0), row.name
    assert row.grad.absolute_maximum == maximum(gradient), row.name
    assert row.grad.nonfinite == 0, row.name
    assert row.reach == ("gradient" if expected.any() else "zero"), row.name


def maximum(gradient: Tensor) -> object:
    """The largest element, to the last bit; of complex ones the modulus, which is rounded."""
    expected = values(gradient).abs().max().item()
    return pytest.approx(expected, rel=1e-6, abs=0) if gradient.is_complex() else expected


@every_architecture
def test_watched_training_is_bit_identical_to_plain_training(case, plain):
    assert differences(plain, train(case, watch=True)) == []


def test_warnings_of_architectures_are_rare(tally):
    tally.check()


def train(case, *, watch: bool) -> dict[str, object]:
    """Make a few steps; return every loss and gradient on the way and the state in the end."""
    model, batch = built(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    seen: dict[str, object] = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = watched_backward(case, model, batch) if watch else plain_backward(case, model, batch)
        seen[f"loss {step}"] = loss
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            seen[f"{name} {step}"] = None if gradient is None else gradient.clone()
        optimizer.step()
    optimizer.zero_grad()
    return seen | state_of(model)


def plain_backward(case, model, batch) -> Tensor:
    loss = forward_loss(case, model, batch)
    loss.backward()
    return loss.detach()


def watched_backward(case, model, batch) -> Tensor:
    capture = StepCapture(list(model.parameters()))
    with capture.forward():
        loss = forward_loss(case, model, batch)
    capture.backward(loss)
    capture.close()
    return loss.detach()
