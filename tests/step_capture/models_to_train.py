"""Models of many kinds, each trained for a few steps by a loop like any script's."""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

STEPS = 6

Outcome = tuple[nn.Module, list[Tensor]]
Loop = Callable[[], Outcome]


def trained(make: Callable[[], nn.Module], batch: Callable[[], tuple], **options) -> Loop:
    """Return a loop of a classifier or regressor."""
    make_optimizer = options.get("optimizer", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))
    loss_fn = options.get("loss", functional.cross_entropy)
    set_to_none = options.get("set_to_none", True)

    def loop() -> Outcome:
        model, losses = make(), []
        optimizer = make_optimizer(model.parameters())
        for _ in range(STEPS):
            *inputs, target = batch()
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = loss_fn(model(*inputs), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return model, losses

    return loop


def features():
    return torch.randn(16, 8), torch.randint(0, 4, (16,))


def images():
    return torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))


def sequences():
    return torch.randn(4, 5, 8), torch.randint(0, 4, (4,))


def words():
    return torch.randint(0, 20, (4, 6)), torch.randint(0, 4, (4,))


def mlp(dropout=0.3, *, inplace=False):
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(inplace=inplace), nn.Dropout(dropout), nn.Linear(32, 4)
    )


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 4),
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.LSTM(8, 12, 2, dropout=0.2), nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.recurrent(x.transpose(0, 1))[0][-1])


class Encoder(nn.Module):
    def __init__(self, *, training=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)
        self.encoder.train(training)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class StaleViews(nn.Module):
    """Writes in place into a base whose views are used before and after."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.inner(x) * 1.0
        left, right = hidden[:, :4], hidden[:, 4:]
        left.mul_(0.5)
        hidden.add_(1.0)
        right[:, 0] = left[:, 1]
        buffer = hidden.new_zeros(hidden.shape[0], 8)
        buffer[:, :4], buffer[:, 4:] = left, right
        return self.head(buffer)


class PageTexts(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, padding_idx=0, sparse=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.table(x).mean(1))


def parametrized():
    class Symmetric(nn.Module):
        def forward(self, weight):
            return weight.triu() + weight.triu(1).T

    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(8, 8)),
        parametrizations.spectral_norm(nn.Linear(8, 8)),
        nn.Linear(8, 4),
    )
    middle = nn.Linear(8, 8)
    parametrize.register_parametrization(middle, "weight", Symmetric())
    return model.insert(1, middle)


class _Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        ctx.mark_non_differentiable(kept := x > 0)
        return x.clamp(min=0) * scale, kept

    @staticmethod
    def backward(ctx, gradient, _):
        (x,) = ctx.saved_tensors
        noise = 1 + 0.1 * torch.rand_like(gradient)
        return gradient.mul_(ctx.scale).mul_(noise).masked_fill_(x <= 0, 0), None


class Custom(nn.Module):
    """Draws random numbers in backward, and writes into the gradient that it is given."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(_Clamped.apply(self.inner(x), 2.0)[0])


def halve(parameter):
    parameter.grad.mul_(0.5)


class Hooked(nn.Module):
    """Has hooks of every kind, some of which change what passes."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.seen = []
        self.inner.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        self.head.weight.register_post_accumulate_grad_hook(halve)
        self.head.register_full_backward_hook(lambda _, given, __: (given[0] * 2,))
        self.inner.register_forward_hook(lambda _, __, out: out + 0.1)

    def forward(self, x):
        hidden = self.inner(x)
        hidden.register_hook(lambda gradient: gradient * torch.rand(()))
        hidden.retain_grad()
        self.seen.append(hidden)
        node = hidden.grad_fn
        node.register_prehook(lambda given: (given[0] + 1e-3,))
        return self.head(hidden.relu())


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.second = mlp(inplace=True), nn.Linear(4, 4)
        self.drop, self.use_reentrant = nn.Dropout(0.4), use_reentrant

    def forward(self, x):
        hidden = self.first(x)
        block = lambda h: self.drop(self.second(h).tanh())  # noqa: E731
        return checkpoint(block, hidden, use_reentrant=self.use_reentrant)


class Autocast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.inner, self.dtype = convolutional(), dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            return self.inner(x)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


MODELS: dict[str, Loop] = {
    "mlp": trained(mlp, features),
    "gradients kept": trained(mlp, features, set_to_none=False),
    "in-place relu": trained(lambda: mlp(inplace=True), features, optimizer=adamw),
    "convolutional": trained(convolutional, images, optimizer=adamw),
    "lstm": trained(Recurrent, sequences),
    "transformer": trained(Encoder, sequences, optimizer=adamw),
    "transformer in eval mode": trained(lambda: Encoder(training=False), sequences),
    "stale views": trained(StaleViews, features),
    "sparse gradients": trained(PageTexts, words, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)),
    "parametrizations": trained(parametrized, features),
    "custom function": trained(Custom, features),
    "hooks": trained(Hooked, features),
    "checkpoint": trained(lambda: Checkpointed(False), features),
    "reentrant checkpoint": trained(lambda: Checkpointed(True), features),
    "autocast bfloat16": trained(lambda: Autocast(torch.bfloat16), images),
    "autocast float16": trained(lambda: Autocast(torch.float16), images),
    "float64": trained(lambda: mlp().double(), lambda: (features()[0].double(), features()[1])),
}


def outcome(loop: Loop) -> tuple[list[Tensor], object, object]:
    """Return all that a loop leaves: weights, buffers, gradients, losses and random states."""
    torch.manual_seed(0)
    random.seed(0)
    model, losses = loop()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    tensors = [*model.state_dict().values(), *gradients, *losses]
    kept = [tensor.detach().clone() for tensor in tensors]
    return kept, torch.get_rng_state().tolist(), random.getstate()


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal to the bit, as those are that hold NaN."""
    if one.is_sparse:
        one, other = one.to_dense(), other.to_dense()
    return one.dtype == other.dtype and bits(one) == bits(other)


def bits(tensor: Tensor) -> bytes:
    """Return what a tensor holds, without rounding, and with the sign of zeros."""
    whole = tensor.double() if tensor.is_floating_point() else tensor
    return whole.numpy().tobytes()
