"""Custom functions, checkpoints, hooks and gradients inside a forward."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.capture.small_models import Through, batch, squares


class WritesInPlace(torch.autograd.Function):
    """Its backward writes into the gradient that it is given."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 5

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient.mul_(5)


def test_custom_function_that_writes_into_its_gradient(watch):
    model = nn.ParameterList([torch.ones(4)])
    seen = watch(model, lambda: WritesInPlace.apply(model[0].sin()).square().sum())
    y = 5 * torch.ones(4).double().sin()
    custom, inner = seen.node("WritesInPlaceBackward"), seen.node("SinBackward0")
    assert seen.gradient(custom).norm == pytest.approx((2 * y).norm().item(), rel=1e-6)
    assert seen.gradient(inner).norm == pytest.approx((10 * y).norm().item(), rel=1e-6)


def test_hook_that_writes_into_a_gradient_leaves_no_wrong_number(watch):
    model = nn.ParameterList([torch.ones(4)])

    def forward() -> Tensor:
        hidden = model[0].sin()
        hidden.register_hook(lambda gradient: gradient.mul_(100))
        # Addition hands the same tensor on, which is thus overwritten for its output too.
        return (hidden + torch.zeros(4)).exp().sum()

    seen = watch(model, forward)
    expected = torch.ones(4).double().sin().exp().norm().item()
    gradient = seen.gradient(seen.node("AddBackward0"))
    assert gradient is None or gradient.norm == pytest.approx(expected, rel=1e-6)
    overwritten = [note for note in seen.recording.skipped if "overwritten" in note.reason]
    assert bool(overwritten) == (gradient is None)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_counted_once(watch_and_compare, reentrant):
    def then(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=reentrant)

    seen = watch_and_compare(
        lambda: Through(
            then, block=nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
        ),
        squares,
    )
    assert [call.call for call in seen.calls("block")] == [0]
    assert [call.call for call in seen.calls("block.0")] == [0]
    assert seen.parameter("block.0.weight").reach == "gradient"
    notes = [note.what for note in seen.recording.skipped]
    assert notes == (["the inside of 1 x CheckpointFunctionBackward"] if reentrant else [])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_block_whose_weight_is_used_outside_too(watch_and_compare, reentrant):
    def then(self, x: Tensor) -> Tensor:
        x = self.block(x)
        return checkpoint(self.block, x, use_reentrant=reentrant)

    watch_and_compare(lambda: Through(then, block=nn.Linear(4, 4)), squares)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_accumulate_under_a_checkpoint(watch, double_norm, reentrant):
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
    model[2].weight.grad = torch.ones(4, 4)

    def forward() -> Tensor:
        return checkpoint(model[1], model[0](batch()), use_reentrant=reentrant).sum()

    for _ in range(3):
        seen = watch(model, forward)
        for name in ("0.weight", "1.weight"):
            gradient = double_norm(model.get_parameter(name).grad)
            assert seen.parameter(name).gradient.norm == pytest.approx(gradient, rel=1e-6)
        assert seen.parameter("2.weight").reach == "none"


def test_sequential_checkpoint(watch_and_compare):
    def forward(model) -> Tensor:
        x = batch().requires_grad_()
        return checkpoint_sequential(model, 2, x, use_reentrant=True).square().mean()

    watch_and_compare(lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))), forward)


def test_gradient_penalty(watch_and_compare):
    def forward(critic) -> Tensor:
        x = batch().requires_grad_()
        score = critic(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return score.mean() + 10 * (slope.norm(dim=1) - 1).square().mean()

    seen = watch_and_compare(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)), forward
    )
    double = seen.site("SoftplusBackwardBackward0")
    assert "torch.autograd.grad(" in double.source


def test_autograd_grad_inside_forward_is_no_part_of_the_measured_backward(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(self.potential(x).sum(), x, retain_graph=True)
        return x - 0.1 * slope

    seen = watch_and_compare(lambda: Through(then, potential=nn.Linear(4, 1)), squares)
    assert seen.parameter("potential.weight").reach == "none"


def test_meta_learning_step_inside_forward(watch_and_compare):
    def forward(model) -> Tensor:
        x = batch()
        weights = dict(model.named_parameters())
        inner = torch.func.functional_call(model, weights, (x,)).square().mean()
        slopes = torch.autograd.grad(inner, tuple(weights.values()), create_graph=True)
        fast = {n: w - 0.1 * s for (n, w), s in zip(weights.items(), slopes, strict=True)}
        return torch.func.functional_call(model, fast, (x,)).square().mean()

    watch_and_compare(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), forward)


TRANSFORMS = {
    "vmap": lambda self, x: torch.func.vmap(lambda row: (row @ self.first.weight).tanh())(x),
    "vmap of a module": lambda self, x: torch.func.vmap(self.first)(x),
    "grad": lambda self, x: x * torch.func.grad(lambda z: z.square().sum())(x),
    "jacrev": lambda self, x: torch.func.jacrev(self.first)(x).sum((2, 3)) * x,
    "jvp": lambda self, x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "vmap over grad": lambda self, x: torch.func.vmap(torch.func.grad(lambda z: z.sin().sum()))(x),
}


@pytest.mark.filterwarnings("ignore:.torch.jit")  # of torch's own use of torch.jit
@pytest.mark.parametrize("then", TRANSFORMS.values(), ids=TRANSFORMS)
def test_function_transforms_inside_a_forward(watch_and_compare, then):
    watch_and_compare(lambda: Through(then), squares)


def test_hook_that_changes_a_parameters_gradient(watch_and_compare):
    def build() -> nn.Module:
        model = nn.Linear(4, 4)
        model.weight.register_hook(lambda gradient: gradient * 7)
        return model

    watch_and_compare(build, squares)


def test_hook_that_changes_an_intermediate_gradient(watch_and_compare):
    def then(self, x: Tensor) -> Tensor:
        x = x.sin()
        x.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        return x

    seen = watch_and_compare(lambda: Through(then), squares)
    clamped = seen.gradient(seen.node("SinBackward0"))
    assert clamped.absolute_maximum == pytest.approx(1e-3)


def test_post_accumulate_hook_that_changes_the_gradient(watch_and_compare):
    def halve(parameter: Tensor) -> None:
        parameter.grad.mul_(0.5)

    def build() -> nn.Module:
        model = nn.Linear(4, 4)
        model.weight.register_post_accumulate_grad_hook(halve)
        return model

    watch_and_compare(build, squares)


def test_optimizer_in_backward_takes_gradients_away(watch, double_norm):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    x = batch()
    expected = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    before = model.weight.detach().clone()
    seen = watch(model, lambda: model(x).square().mean())
    for name, gradient in zip(("weight", "bias"), expected, strict=True):
        stat = seen.parameter(name)
        assert stat.reach == "gradient"
        assert stat.gradient.norm == pytest.approx(double_norm(gradient), rel=1e-6)
    assert model.weight.grad is None
    assert torch.allclose(model.weight, before - 0.1 * expected[0])


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_full_backward_hooks_of_the_users_run_as_without(watch_and_compare):
    fired: list[str] = []

    def note(module, grad_input, grad_output) -> None:
        fired.append(type(module).__name__)

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        for layer in model:
            layer.register_full_backward_hook(note)
        return model

    watch_and_compare(build, squares)
    assert fired == ["Linear", "Tanh", "Linear"] * 2


def test_retained_gradients_are_the_users_own(watch):
    model = nn.Linear(4, 4)
    kept = []

    def forward() -> Tensor:
        hidden = model(batch()).sin()
        hidden.retain_grad()
        kept.append(hidden)
        return hidden.square().sum()

    seen = watch(model, forward)
    assert torch.equal(kept[0].grad, 2 * kept[0].detach())
    norm = kept[0].grad.double().norm().item()
    assert seen.gradient(seen.node("SinBackward0")).norm == pytest.approx(norm, rel=1e-6)
