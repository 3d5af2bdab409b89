"""Measured clipping equals torch's functions on copies, and changes no gradient."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm

from gradscope.analysis.clipping.arithmetic import norm_of, outcome, torchs_norm_of
from gradscope.probes.clipping import LEAST_GRADIENT_NORM, LEAST_WEIGHT_NORM, ClipProbe
from gradscope.recording.evidence.training import ClipPass, ClipTrial
from gradscope.target.options import ClipOptions


def parameters(*shapes, dtype=torch.float32, size=1.0):
    generator = torch.Generator().manual_seed(0)
    found = []
    for shape in shapes:
        made = nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        made.grad = (size * torch.randn(shape, generator=generator)).to(dtype)
        found.append(made)
    return found


def measured(held, **options) -> tuple[ClipTrial, ClipPass]:
    """Measure, and make sure that gradients and weights stay what and where they are."""
    gradients = [one.grad for one in held]
    before = [None if one is None else one.clone() for one in gradients]
    weights = [one.detach().clone() for one in held]
    versions = [None if one is None else one._version for one in gradients]
    probe = ClipProbe(held, ClipOptions(**options))
    probe.measure(made=0, loss=1.0)
    trial, one = probe.records(0)
    assert all(p.grad is gradient for p, gradient in zip(held, gradients, strict=True))
    assert versions == [None if g is None else g._version for g in gradients]
    for now, then in zip(gradients, before, strict=True):
        assert now is None or same(now, then)
    assert all(map(same, held, weights))
    return trial, one


def same(first, second):
    first, second = first.detach(), second.detach()
    if first.layout is not torch.strided:
        first, second = first.to_dense(), second.to_dense()
    return torch.equal(first.nan_to_num(7.0), second.nan_to_num(7.0))


def dense_copy(held):
    copies = []
    for one in held:
        made = nn.Parameter(one.detach().clone())
        if one.grad is not None:
            made.grad = one.grad.to_dense() if one.grad.is_sparse else one.grad.clone()
        copies.append(made)
    return copies


def norms(held):
    return [math.nan if one.grad is None else one.grad.double().norm().item() for one in held]


def near(held, rel=1e-6):
    """The norms, NaN where there is no gradient, as torch computes in single precision."""
    # Of 120,000 elements torch's own norm is off by 4e-5.
    is_large = any(one.numel() > 100_000 for one in held)
    return pytest.approx(norms(held), rel=1e-4 if is_large else rel, nan_ok=True)


def left(found):
    return [math.nan if norm is None else norm for norm in found.norms]


def cosine(first, second):
    flat = [
        torch.cat([p.grad.double().reshape(-1) for p in held if p.grad is not None])
        for held in (first, second)
    ]
    return torch.nn.functional.cosine_similarity(*flat, dim=0).item()


SETS = {
    "matrices and vectors": lambda: parameters((64, 32), (64,), (3, 3, 8, 8), ()),
    "many elements": lambda: parameters((300, 400), (5,)),
    "large": lambda: parameters((64, 32), (64,), size=1e4),
    "small": lambda: parameters((64, 32), (64,), size=1e-4),
    "double": lambda: parameters((64, 32), (64,), dtype=torch.float64),
    "several types": lambda: [
        *parameters((16, 8)),
        *parameters((16,), dtype=torch.float64),
    ],
    "one without gradient": lambda: [*parameters((16, 8)), nn.Parameter(torch.ones(3))],
}
every_set = pytest.mark.parametrize("make", SETS.values(), ids=SETS)


@every_set
@pytest.mark.parametrize("norm_type", [2.0, math.inf, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.1, 1.5])
def test_global_norm_is_clipped_as_torch_clips_it(make, norm_type, share):
    held = make()
    total = get_total_norm([p.grad for p in held if p.grad is not None], norm_type).item()
    limit = share * total
    trial, one = measured(held, max_norm=limit, norm_type=norm_type)
    assert norm_of(one, trial) == pytest.approx(total, rel=1e-4)

    copies = dense_copy(held)
    assert clip_grad_norm_(copies, limit, norm_type).item() == torchs_norm_of(one, trial)
    found = outcome("norm", one, trial)
    assert found.coefficient == pytest.approx(min(limit / (total + 1e-6), 1.0), rel=1e-12)
    assert left(found) == near(copies, 2e-6)
    assert found.cosine == 1.0
    assert found.is_cut == (found.coefficient < 1)


@every_set
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_each_tensor_is_clipped_as_torch_clips_it(make, norm_type):
    held = make()
    limit = 1.5
    trial, one = measured(held, max_norm=limit, norm_type=norm_type, per_tensor=True)
    copies = dense_copy(held)
    for copied in copies:
        clip_grad_norm_(copied, limit, norm_type)
    found = outcome("per-tensor", one, trial)
    assert left(found) == near(copies, 2e-6)
    assert found.cosine == pytest.approx(cosine(held, copies), rel=1e-5)


@every_set
@pytest.mark.parametrize("value", [1e-5, 0.05, 0.7, 1e6])
def test_elements_are_clipped_as_torch_clips_them(make, value):
    held = make()
    trial, one = measured(held, value=value)
    copies = dense_copy(held)
    clip_grad_value_(copies, value)
    found = outcome("value", one, trial)
    assert left(found) == near(copies)
    assert found.cosine == pytest.approx(cosine(held, copies), rel=1e-6)
    cut = sum(int((p.grad.abs() > value).sum()) for p in held if p.grad is not None)
    assert (one.by_value.cut, found.is_cut) == (cut, cut > 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_elements_of_half_precision_are_clipped_to_a_limit_that_it_can_hold(dtype):
    held = parameters((64, 32), (64,), dtype=dtype)
    trial, one = measured(held, value=0.3)
    copies = dense_copy(held)
    clip_grad_value_(copies, 0.3)
    assert left(outcome("value", one, trial)) == near(copies)


def test_norm_of_half_precision_is_exact_and_clipped_by_the_one_that_torch_computes():
    held = parameters((64, 32), (64,), dtype=torch.bfloat16)
    trial, one = measured(held, max_norm=1.0)
    exact = math.hypot(*norms(held))
    assert norm_of(one, trial) == pytest.approx(exact, rel=1e-6)
    assert torchs_norm_of(one, trial) == get_total_norm([p.grad for p in held]).item()


def units(held, ratio):
    """Adaptive clipping as its paper has it, element by element."""
    copies = dense_copy(held)
    for weight in copies:
        rows = weight.detach().reshape(weight.shape[0] if weight.dim() > 1 else 1, -1).double()
        gradients = weight.grad.reshape(rows.shape).double()
        for row, gradient in zip(rows, gradients, strict=True):
            limit = ratio * max(row.norm().item(), LEAST_WEIGHT_NORM)
            if gradient.norm().item() >= limit:
                gradient *= limit / max(gradient.norm().item(), LEAST_GRADIENT_NORM)
        weight.grad = gradients.reshape(weight.shape).to(weight.dtype)
    return copies


@pytest.mark.parametrize("ratio", [0.01, 0.8, 100.0])
def test_units_are_clipped_by_the_norm_of_their_weights(ratio):
    held = parameters((64, 32), (64,), (6, 3, 5, 5))
    held[0].data[3] = 0.0
    trial, one = measured(held, adaptive_ratio=ratio)
    copies = units(held, ratio)
    found = outcome("adaptive", one, trial)
    assert left(found) == near(copies)
    assert found.cosine == pytest.approx(cosine(held, copies), rel=1e-6)
    assert one.adaptive.of == 64 + 1 + 6


def sparse_parameters():
    table = nn.Parameter(torch.randn(20, 4))
    rows = torch.tensor([[3, 7, 3, 19]])  # one of them twice
    table.grad = torch.sparse_coo_tensor(rows, torch.randn(4, 4), (20, 4), check_invariants=True)
    return [table, *parameters((8, 4))]


@pytest.mark.parametrize("norm_type", [2.0, math.inf, 3.0])
def test_sparse_gradients_are_what_dense_ones_would_be(norm_type):
    torch.manual_seed(0)
    held = sparse_parameters()
    trial, one = measured(held, max_norm=0.5, norm_type=norm_type, value=0.2, adaptive_ratio=0.05)
    total = get_total_norm([p.grad for p in dense_copy(held)], norm_type).item()
    assert norm_of(one, trial) == pytest.approx(total, rel=1e-6)
    for method, clip in {
        "norm": lambda copies: clip_grad_norm_(copies, 0.5, norm_type),
        "value": lambda copies: clip_grad_value_(copies, 0.2),
    }.items():
        copies = dense_copy(held)
        clip(copies)
        assert left(outcome(method, one, trial)) == near(copies, 2e-6)
    copies = units(held, 0.05)
    assert left(outcome("adaptive", one, trial)) == near(copies)
    assert "sparse" in one.failure


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_norm_that_is_not_finite_does_what_torch_does(broken):
    held = parameters((4, 4), (3,))
    held[1].grad[0] = broken
    trial, one = measured(held, max_norm=1.0)
    assert not math.isfinite(norm_of(one, trial))
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_(dense_copy(held), 1.0, error_if_nonfinite=True)
    copies = dense_copy(held)
    clip_grad_norm_(copies, 1.0)
    found = outcome("norm", one, trial)
    assert left(found) == near(copies)
    assert found.cosine is None


def test_norm_that_overflows_in_single_precision_makes_finite_gradients_zero():
    held = parameters((4, 4), size=1e25)
    trial, one = measured(held, max_norm=1.0)
    assert norm_of(one, trial) == pytest.approx(norms(held)[0], rel=1e-6)
    assert torchs_norm_of(one, trial) == get_total_norm([held[0].grad]).item()


def test_nothing_has_a_gradient():
    held = [nn.Parameter(torch.ones(3))]
    trial, one = measured(held, max_norm=1.0)
    assert norm_of(one, trial) == get_total_norm([]).item() == 0.0
    assert outcome("norm", one, trial).coefficient == 1.0
    assert not outcome("value", one, trial).is_cut


@pytest.mark.parametrize(
    ("options", "clip"),
    [
        ({"max_norm": 0.5}, lambda held: clip_grad_norm_(held, 0.5)),
        ({"max_norm": 0.1, "norm_type": math.inf}, lambda h: clip_grad_norm_(h, 0.1, math.inf)),
        ({"max_norm": 0.5, "per_tensor": True}, lambda h: [clip_grad_norm_(p, 0.5) for p in h]),
        ({"value": 0.05}, lambda held: clip_grad_value_(held, 0.05)),
    ],
)
def test_gradients_of_a_step_are_clipped_as_torch_clips_them(options, clip):
    held = parameters((8, 4), (8,))
    copies = dense_copy(held)
    probe = ClipProbe(held, ClipOptions(**options))
    probe.measure(made=0, loss=None)
    probe.clip()
    clip(copies)
    for one, other in zip(held, copies, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=0)


def test_gradients_are_left_as_they_are_without_a_limit():
    held = parameters((8, 4), (8,))
    copies = copy.deepcopy([one.grad for one in held])
    probe = ClipProbe(held, ClipOptions())
    probe.measure(made=0, loss=None)
    probe.clip()
    assert all(torch.equal(one.grad, other) for one, other in zip(held, copies, strict=True))


@pytest.mark.parametrize("options", [{"max_norm": 0.3}, {"value": 0.1}, {"adaptive_ratio": 0.05}])
def test_sparse_gradients_of_a_step_are_clipped_too(options):
    torch.manual_seed(0)
    held = sparse_parameters()
    probe = ClipProbe(held, ClipOptions(**options))
    probe.measure(made=0, loss=None)
    trial, one = probe.records(1)
    probe.clip()
    found = outcome(trial.asked[0], one, trial)
    assert norms(dense_copy(held)) == pytest.approx(found.norms, rel=1e-5)
