"""GS205 of losses with parameters of their own, and of optimizers that hold the same network."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


class Net(nn.Module):
    """An encoder and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.encoder(x))


class CentreLoss(nn.Module):
    """The distance of features to the centre of their class."""

    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(4, 16))

    def forward(self, model, x, y):
        features = model.encoder(x)
        pull = (features - self.centers[y]).pow(2).sum(1).mean()
        return functional.cross_entropy(model.head(features), y) + 0.01 * pull


class Temperature(nn.Module):
    """Logits times a learned number."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, model, x, y):
        return functional.cross_entropy(self.log_scale.exp() * model(x), y)


class Uncertainty(nn.Module):
    """Two losses with learned weights."""

    def __init__(self):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, model, x, y):
        out = model(x)
        losses = torch.stack([functional.cross_entropy(out, y), out.pow(2).mean()])
        return (losses * torch.exp(-self.log_vars) + self.log_vars).sum()


def training(model, criterion, optimizers, *, after=None, steps=12):
    for _ in range(steps):
        x = torch.randn(32, 12)
        y = x[:, :4].argmax(1)
        for one in optimizers:
            one.zero_grad()
        criterion(model, x, y).backward()
        for one in optimizers:
            one.step()
        if after is not None:
            after(criterion)


def found(loop, folder):
    return [one for one in findings_of(loop, folder) if one.rule == "GS205"]


@pytest.mark.parametrize("kind", [CentreLoss, Temperature, Uncertainty])
@pytest.mark.parametrize("held", [False, True])
def test_parameters_of_a_loss_that_no_optimizer_holds_are_an_error(kind, held, tmp_path):
    def loop():
        torch.manual_seed(0)
        model, criterion = Net(), kind()
        given = [*model.parameters(), *(criterion.parameters() if held else ())]
        training(model, criterion, [torch.optim.Adam(given, lr=1e-2)])

    findings = found(loop, tmp_path)
    assert [one.severity for one in findings] == ([] if held else ["error"])
    assert all(one.message.startswith("criterion (1 parameter) gets") for one in findings)


def step_by_hand(criterion):
    with torch.no_grad():
        criterion.centers -= 0.5 * criterion.centers.grad
        criterion.centers.grad = None


@pytest.mark.nightly
def test_centres_that_the_script_steps_by_hand_learn(tmp_path):
    def loop():
        torch.manual_seed(0)
        model, criterion = Net(), CentreLoss()
        adam = torch.optim.Adam(model.parameters(), lr=1e-2)
        training(model, criterion, [adam], after=step_by_hand)

    assert not found(loop, tmp_path)


def test_centres_that_are_frozen_are_no_finding(tmp_path):
    def loop():
        torch.manual_seed(0)
        model, criterion = Net(), CentreLoss().requires_grad_(False)
        training(model, criterion, [torch.optim.Adam(model.parameters(), lr=1e-2)])

    assert not found(loop, tmp_path)


def reconstruction(networks, x, y):
    del y
    return functional.mse_loss(networks[1](networks[0](x)), x)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("first", "second", "levels"),
    some_on_push([(0, 0, ["error"]), (1, 1, ["error"]), (0, 1, []), (1, None, ["note"])], 2),
)
def test_two_optimizers_of_one_network_were_meant_for_two(first, second, levels, tmp_path):
    """A network of data in no optimizer is a note: it may be a backbone that is probed."""

    def loop():
        torch.manual_seed(0)
        networks = [
            nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6)),
            nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 12)),
        ]
        optimizers = [torch.optim.SGD(networks[first].parameters(), lr=1e-2)]
        if second is not None:
            optimizers.append(torch.optim.SGD(networks[second].parameters(), lr=1e-2))
        training(networks, reconstruction, optimizers)

    assert [one.severity for one in found(loop, tmp_path)] == levels


def test_two_optimizers_of_one_network_beside_another_that_the_script_clears(tmp_path):
    """As a copied line does: the generator's optimizer holds the discriminator."""

    def loop():
        torch.manual_seed(0)
        networks = [
            nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6)),
            nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 12)),
        ]
        sgd = [torch.optim.SGD(networks[1].parameters(), lr=1e-2)]
        sgd.append(torch.optim.SGD(networks[1].parameters(), lr=1e-2))
        for _ in range(12):
            x = torch.randn(32, 12)
            for one in networks:
                one.zero_grad()
            reconstruction(networks, x, None).backward()
            for one in sgd:
                one.step()

    assert [one.severity for one in found(loop, tmp_path)] == ["error"]


def critic(width=16):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 1))


ALIKE = {
    "built alike": (lambda first: critic(), False, ["error"]),
    "cleared": (lambda first: critic(), True, ["note"]),
    "a copy": (copy.deepcopy, False, ["note"]),
    "of other shapes": (lambda first: critic(8), False, ["note"]),
    "frozen": (lambda first: critic().requires_grad_(False), False, []),
    "in eval mode": (lambda first: critic().eval(), False, ["note"]),
}


@pytest.mark.parametrize("name", some_on_push(ALIKE, 3))
def test_the_second_of_two_networks_that_is_in_no_optimizer(name, tmp_path):
    make_second, is_cleared, levels = ALIKE[name]

    def loop():
        torch.manual_seed(0)
        first = critic()
        second = make_second(first)
        adam = torch.optim.Adam(first.parameters(), lr=1e-3)
        for _ in range(12):
            x = torch.randn(32, 12)
            goal = x.sum(1, keepdim=True)
            loss = functional.mse_loss(first(x), goal) + functional.mse_loss(second(x), goal)
            adam.zero_grad()
            if is_cleared:
                second.zero_grad()
            loss.backward()
            adam.step()

    assert [one.severity for one in found(loop, tmp_path)] == levels


def test_a_layer_between_trained_layers_is_an_error_where_nothing_clears_its_gradients(tmp_path):
    def loop():
        torch.manual_seed(0)
        model = nn.ModuleDict(
            {"encoder": nn.Linear(12, 16), "neck": nn.Linear(16, 16), "head": nn.Linear(16, 4)}
        )

        def criterion(model, x, y):
            hidden = model["encoder"](x).tanh()
            return functional.cross_entropy(model["head"](model["neck"](hidden).tanh()), y)

        given = [p for name in ("encoder", "head") for p in model[name].parameters()]
        training(model, criterion, [torch.optim.Adam(given, lr=1e-2)])

    (finding,) = found(loop, tmp_path)
    assert finding.severity == "error"
    assert "neck'] (2 parameters)" in finding.message


class Kernel(nn.Module):
    """A state space: poles and steps make powers, which weights combine."""

    def __init__(self):
        super().__init__()
        self.log_step = nn.Parameter(torch.linspace(-3, -1, 8).unsqueeze(1))
        self.pole = nn.Parameter(0.5 + torch.rand(8, 4))
        self.weight = nn.Parameter(torch.randn(8, 4))

    def forward(self, length):
        rate = -self.pole * self.log_step.exp()
        powers = torch.exp(rate.unsqueeze(-1) * torch.arange(length))
        return torch.einsum("hn,hnl->hl", self.weight, powers)


class StateSpace(nn.Module):
    """A kernel that is convolved with its input, and a head."""

    def __init__(self):
        super().__init__()
        self.kernel = Kernel()
        self.head = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))

    def forward(self, x):
        length = x.size(-1)
        kernel = torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(torch.fft.rfft(x, n=2 * length) * kernel, n=2 * length)
        return self.head(y[..., :length].mean(-1))


@pytest.mark.parametrize(
    ("left_out", "severities"),
    [
        ((), []),
        (("log_step",), ["error"]),
        (("log_step", "pole"), ["error"]),
        # A whole encoder may be meant to stay as it is.
        (("log_step", "pole", "weight"), ["warning"]),
    ],
)
def test_what_a_layer_combines_with_its_own_weights_is_no_first_layer(
    left_out, severities, tmp_path
):
    def loop():
        torch.manual_seed(0)
        model = StateSpace()
        named = model.named_parameters()
        held = [p for name, p in named if name.rpartition(".")[2] not in left_out or "head" in name]
        optimizer = torch.optim.Adam(held, lr=1e-2)
        for _ in range(12):
            x = torch.randn(16, 8, 20)
            loss = functional.cross_entropy(model(x), x.mean(-1).argmax(1) % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert [one.severity for one in found(loop, tmp_path)] == severities
