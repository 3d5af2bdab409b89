"""GS720: losses with a wrong sign."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Laplace, Normal
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

generator = torch.Generator().manual_seed(1)
X = torch.randn(32, 6, generator=generator)
Y = torch.randn(32, 3, generator=generator)
CLASSES = torch.randint(0, 3, (32,), generator=generator)
ADVANTAGES = torch.randn(32, generator=generator)
COSTS = ADVANTAGES
ROWS = torch.arange(32)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def surrogates(logits):
    ratio = (logits.log_softmax(1)[ROWS, CLASSES] + 1.1).exp()
    return ratio * ADVANTAGES, ratio.clamp(0.8, 1.2) * ADVANTAGES


def density(out):
    return Normal(out[:, 0], functional.softplus(out[:, 1])).log_prob(Y[:, 0])


def mixture(out):
    densities = Normal(out, functional.softplus(out) + 0.1).log_prob(Y[:, :1])
    return (out.log_softmax(1) + densities).logsumexp(1).mean()


def path_score(out):
    steps = out.view(8, 4, 3)
    tags = CLASSES.view(8, 4)
    score = steps.gather(2, tags[..., None]).sum((1, 2))
    total = steps[:, 0]
    for step in range(1, 4):
        total = torch.logsumexp(total.unsqueeze(2) + steps[:, step].unsqueeze(1), 1)
    return (score - total.logsumexp(1)).mean()


def signal_to_noise(out):
    scaled = (out * Y).sum(1, keepdim=True) * Y / Y.pow(2).sum(1, keepdim=True)
    powers = scaled.pow(2).sum(1), (out - scaled).pow(2).sum(1) + 1e-8
    return 10 * torch.log10(powers[0] / powers[1]).mean()


def dice(out):
    shares, mask = out.sigmoid(), (Y > 0).float()
    return ((2 * (shares * mask).sum(0) + 1) / (shares.sum(0) + mask.sum(0) + 1)).mean()


def intersection_over_union(out):
    shares, mask = out.sigmoid(), (Y > 0).float()
    common = (shares * mask).sum(0)
    return ((common + 1e-6) / (shares.sum(0) + mask.sum(0) - common + 1e-6)).mean()


def two_classes(out, *, weigh=lambda p: 1.0, costs=1.0):
    """The log-likelihood of two classes; `weigh` gets the probability of the other one."""
    p, target = out[:, 0].sigmoid().clamp(1e-4, 1 - 1e-4), (Y[:, 0] > 0).float()
    return costs * (
        torch.log(p) * weigh(1 - p) * target + weigh(p) * (1 - target) * torch.log(1 - p)
    )


def of_output(function):
    return lambda model, batch: function(model(batch))


SICK = {
    "mse": lambda out: -functional.mse_loss(out, Y),
    "weighed": lambda out: -(0.5 * functional.mse_loss(out, Y)),
    "cross-entropy": lambda out: 0 - functional.cross_entropy(out, CLASSES),
    "two terms": lambda out: -(functional.mse_loss(out, Y) + 0.1 * functional.l1_loss(out, Y)),
    "square by hand": lambda out: -(Y - out).pow(2).sum(1).mean(),
    "magnitude by hand": lambda out: -(out - Y).abs().mean(),
    "gathered": lambda out: out.log_softmax(1).gather(1, CLASSES[:, None]).mean(),
    "picked": lambda out: (functional.one_hot(CLASSES, 3) * out.log_softmax(1)).sum(1).mean(),
    "distribution": lambda out: Categorical(logits=out).log_prob(CLASSES).mean(),
    "surrogate": lambda out: torch.min(*surrogates(out)).mean(),
    "surrogate beside a critic": lambda out: (
        torch.min(*surrogates(out)).mean() + functional.smooth_l1_loss(out, Y)
    ),
    "density by hand": lambda out: (
        -((Y[:, 0] - out[:, 0]) ** 2) / (2 * out[:, 1].exp() ** 2) - out[:, 1]
    ).mean(),
    "pairs": lambda out: (out @ Y.T).log_softmax(1).diag().mean(),
    "density": lambda out: density(out).mean(),
    "mixture": mixture,
    "path": path_score,
    "signal to noise": signal_to_noise,
    "inverse error": lambda out: (10 * torch.log10(1 / (out - Y).pow(2).mean(1))).mean(),
    "overlap": dice,
    "overlap of a union": intersection_over_union,
    "density of one width": lambda out: Normal(out, 0.5).log_prob(Y).sum(1).mean(),
    "two classes": lambda out: two_classes(out).mean(),
    "focal": lambda out: 1 + two_classes(out, weigh=lambda p: p**2).sum() / 7,
    "magnitudes": lambda out: (
        Laplace(out[:, 0], functional.softplus(out[:, 1])).log_prob(Y[:, 0]).mean()
    ),
}

HEALTHY = {
    "mse": lambda out: functional.mse_loss(out, Y),
    "cross-entropy": lambda out: functional.cross_entropy(out, CLASSES),
    "negated twice": lambda out: -(0 - functional.mse_loss(out, Y)),
    "gathered": lambda out: -out.log_softmax(1).gather(1, CLASSES[:, None]).mean(),
    "distribution": lambda out: -Categorical(logits=out).log_prob(CLASSES).mean(),
    "density": lambda out: -density(out).mean(),
    "pairs": lambda out: -(out @ Y.T).log_softmax(1).diag().mean(),
    "mixture": lambda out: -mixture(out),
    "path": lambda out: -path_score(out),
    "signal to noise": lambda out: -signal_to_noise(out),
    "overlap": lambda out: 1 - dice(out),
    "overlap of a union": lambda out: 1 - intersection_over_union(out),
    "density of one width": lambda out: -Normal(out, 0.5).log_prob(Y).sum(1).mean(),
    "distance over a width": lambda out: (
        ((out[:, 0] - Y[:, 0]) ** 2 / functional.softplus(out[:, 1])).mean() + out[:, 1].mean()
    ),
    "costs of a density": lambda out: (density(out) * COSTS.abs()).mean(),
    "density of a draw": lambda out: (
        Normal(out[:, 0], 1.0).log_prob(out[:, 0] + COSTS).mean() + out.pow(2).mean()
    ),
    "distances compared": lambda out: torch.log(
        (out - Y).pow(2).sum(1) / ((out - Y[:1]).pow(2).sum(1) + 0.1)
    ).mean(),
    "share within a region": lambda out: (
        (out.sigmoid() * (Y > 0)).sum(0) / (out.sigmoid().sum(0) + 1e-3)
    ).mean(),
    "far from one in proportion to another": lambda out: (
        -((out - Y[:1]) ** 2) / (2 * (out - Y).pow(2).clamp(min=0.1))
    ).mean(),
    "preferred": lambda out: -functional.logsigmoid(out[:, 0] - out[:, 1]).mean(),
    "logistic": lambda out: (
        -(functional.logsigmoid(out[:, 0]) + functional.logsigmoid(-out[:, 1])).mean()
    ),
    "surrogate": lambda out: -torch.min(*surrogates(out)).mean(),
    "surrogate beside a critic": lambda out: (
        functional.smooth_l1_loss(out, Y) - torch.min(*surrogates(out)).mean()
    ),
    "surrogate of costs": lambda out: torch.max(*surrogates(out)).mean(),
    "one error against another": lambda out: (
        functional.mse_loss(out, Y) - 0.1 * functional.cross_entropy(out, CLASSES)
    ),
    "costs": lambda out: (out.log_softmax(1)[ROWS, CLASSES] * COSTS).mean(),
    "positive costs": lambda out: (out.log_softmax(1)[ROWS, CLASSES] * COSTS.abs()).mean(),
    "cost of an episode": lambda out: out.log_softmax(1)[ROWS, CLASSES].sum() * 3.0,
    "negative rewards": lambda out: (
        functional.cross_entropy(out, CLASSES, reduction="none") * -COSTS.abs()
    ).mean(),
    "entropy": lambda out: (out.softmax(1) * out.log_softmax(1)).sum(1).mean(),
    "two classes": lambda out: -two_classes(out).mean(),
    "focal": lambda out: 1 - two_classes(out, weigh=lambda p: p**2).sum() / 7,
    "entropy of two classes": lambda out: two_classes(out, weigh=lambda p: 1 - p).mean(),
    "costs of two actions": lambda out: two_classes(out, costs=COSTS.abs()).mean(),
    "cost of all actions": lambda out: 3.0 * two_classes(out).sum(),
    "pushed apart": lambda out: functional.relu(1 - (out - Y).pow(2).sum(1)).mean(),
    "energy": lambda out: -out.pow(2).mean(),
    "two outputs pushed apart": lambda out: -functional.mse_loss(out[:, 0], out[:, 1]),
    "generator": lambda out: (
        -functional.binary_cross_entropy_with_logits(out, torch.zeros_like(out))
    ),
    "generator by logits": lambda out: functional.logsigmoid(-out).mean(),
}


def told(findings):
    return [one for one in findings if one.rule == "GS720"]


@pytest.mark.parametrize("name", some_on_push(SICK, 4))
def test_a_loss_that_enlarges_the_error_is_an_error(findings_of, name):
    (found,) = told(findings_of(network(), X, of_output(SICK[name])))
    assert found.severity == "error"
    assert found.location.file.endswith("test_loss_maximised.py")


@pytest.mark.parametrize("name", some_on_push(HEALTHY, 4))
def test_a_loss_that_makes_the_error_smaller_is_none(findings_of, name):
    assert not told(findings_of(network(), X, of_output(HEALTHY[name])))


VIEWS = {
    "no minus": (lambda p, z, other: functional.cosine_similarity(p, z).mean() * 0.5, ["error"]),
    "minus": (lambda p, z, other: -functional.cosine_similarity(p, z).mean(), []),
    "negative factor": (lambda p, z, other: -0.5 * functional.cosine_similarity(p, z).mean(), []),
    "negative divisor": (lambda p, z, other: functional.cosine_similarity(p, z).mean() / -2, []),
    "one less": (lambda p, z, other: 2 - 2 * functional.cosine_similarity(p, z).mean(), []),
    "another term": (
        lambda p, z, other: (
            functional.cosine_similarity(p, z).mean() + functional.mse_loss(p, other)
        ),
        [],
    ),
    "data": (lambda p, z, other: functional.cosine_similarity(p, other).mean(), []),
}


@pytest.mark.parametrize("name", some_on_push(VIEWS, {0, 1, 2, 5, 6}))
def test_outputs_that_are_only_pushed_from_their_own_targets_are_found(findings_of, name):
    function, levels = VIEWS[name]

    def loss(model, batch):
        encoded = model[:2](batch), model[:2](batch + 0.1)
        return function(model[2](encoded[0]), model[2](encoded[1]).detach(), Y)

    found = told(findings_of(network(), X, loss))
    assert [one.severity for one in found] == levels


def test_a_patch_on_the_input_may_enlarge_the_error(findings_of):
    class Patched(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network().requires_grad_(False)
            self.patch = nn.Parameter(torch.zeros(6))

        def forward(self, x):
            return self.model(x + self.patch)

    assert not told(findings_of(Patched(), X, of_output(SICK["cross-entropy"])))
    free = Patched()
    free.model.requires_grad_(True)
    assert told(findings_of(free, X, of_output(SICK["cross-entropy"])))


TRAINING = """
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1{options})
x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
{before}
for step in range(6):
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
    {after}
"""

ENLARGED = "-functional.cross_entropy(model(x), y)"
RETAINED = (
    "optimizer.zero_grad(); functional.cross_entropy(model(x), y).backward(); optimizer.step()"
)
TRAINED = """
for _ in range(200):
    functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
    optimizer.zero_grad()
y = x[:, :3].argmax(1)
"""
PREFERRED = "functional.logsigmoid(model(x)[:, 0] - model(x)[:, 1]).mean()"
RUNS = {
    "a minus too many": ({"loss": ENLARGED}, ["error"]),
    "preferences without a minus": ({"loss": PREFERRED}, ["error"]),
    "rewards that an optimizer maximises": (
        {"loss": PREFERRED, "options": ", maximize=True"},
        [],
    ),
    "preferences": ({"loss": f"-{PREFERRED}"}, []),
    "none": ({"loss": ENLARGED[1:]}, []),
    "forgets what another loss retains": ({"loss": ENLARGED, "after": RETAINED}, []),
    "unlearns": ({"loss": ENLARGED, "before": TRAINED}, []),
}


@pytest.mark.parametrize("name", some_on_push(RUNS, 2))
def test_in_a_run_no_other_backward_may_oppose_it(name, tmp_path):
    parts, levels = RUNS[name]
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(**{"before": "", "after": "", "options": ""} | parts))
    assert [one.severity for one in told(findings_of_script(script, tmp_path))] == levels


OPPOSED = """
import torch
from torch import nn
from torch.nn import functional

class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient

torch.manual_seed(0)
body, head, other = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)
{before}
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters(), *other.parameters()], lr=0.1)
x, y, z = torch.randn(32, 6), torch.randint(0, 3, (32,)), torch.randint(0, 2, (32,))
for step in range(6):
    hidden = torch.relu(body(x))
    task = functional.cross_entropy(head(hidden), y)
    domain = functional.cross_entropy({logits}, z)
    optimizer.zero_grad()
    ({loss}).backward()
    optimizer.step()
"""
REVERSED, PLAIN = "other(Reverse.apply(hidden))", "other(hidden)"
OPPOSED_RUNS = {
    "reversed twice": ({"logits": REVERSED, "loss": "task - domain"}, ["warning"]),
    "weighed": ({"logits": REVERSED, "loss": "task - 0.3 * domain"}, ["warning"]),
    "never reversed": ({"logits": PLAIN, "loss": "task - domain"}, ["warning"]),
    "reversed once": ({"logits": REVERSED, "loss": "task + domain"}, []),
    "reversed for the layer, too": (
        {"logits": "Reverse.apply(other(hidden))", "loss": "task - domain"},
        [],
    ),
    "a frozen layer": (
        {"logits": PLAIN, "loss": "task - domain", "before": "other.requires_grad_(False)"},
        [],
    ),
    "no layer of its own": ({"logits": "head(hidden)[:, :2]", "loss": "task - 0.1 * domain"}, []),
}


@pytest.mark.parametrize("name", OPPOSED_RUNS)
def test_layers_that_only_an_enlarged_error_trains_are_found(name, tmp_path):
    changes, levels = OPPOSED_RUNS[name]
    script = tmp_path / "train.py"
    script.write_text(OPPOSED.format(**{"before": ""} | changes))
    found = told(findings_of_script(script, tmp_path))
    assert [one.severity for one in found] == levels
    assert all(len(one.parameters) == 2 for one in found)  # weight and bias of `other`
