"""GS205 of whole networks that a script trains through, and that no optimizer holds."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.intent import is_named_fixed
from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def network(inside, hidden, outside):
    return nn.Sequential(nn.Linear(inside, hidden), nn.Tanh(), nn.Linear(hidden, outside))


def training(first, second, parameters, *, clear, steps=14):
    torch.manual_seed(1)
    adam = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(steps):
        x = torch.randn(16, 12)
        loss = functional.mse_loss(second(first(x)), x)
        (adam if clear == "optimizer" else nn.ModuleList([first, second])).zero_grad()
        loss.backward()
        adam.step()


def levels(loop, folder):
    return [one.severity for one in findings_of(loop, folder) if one.rule == "GS205"]


@pytest.mark.parametrize(("clear", "level"), [("optimizer", "error"), ("all", "warning")])
def test_a_forgotten_decoder_is_worse_if_nothing_clears_its_gradients(clear, level, tmp_path):
    def loop():
        first, second = network(12, 24, 4), network(4, 24, 12)
        training(first, second, first.parameters(), clear=clear)

    assert levels(loop, tmp_path) == [level]


@pytest.mark.parametrize(
    ("change", "clear", "level"),
    [
        ("none", "optimizer", "warning"),
        ("none", "all", "note"),  # the author knows of its gradients
        ("loaded", "optimizer", "note"),  # a backbone that is probed
        ("eval", "optimizer", "note"),
        ("apart", "optimizer", "note"),  # a network of its own
    ],
)
def test_an_encoder_that_nothing_trains_or_clears_is_a_warning(change, clear, level, tmp_path):
    def loop():
        torch.manual_seed(1)
        model = nn.Sequential(network(12, 24, 4), network(4, 24, 12))
        if change == "loaded":
            model[0].load_state_dict(copy.deepcopy(model[0]).state_dict())
        model[0].train(change != "eval")
        adam = torch.optim.Adam(model[1].parameters(), lr=1e-2)
        for _ in range(14):
            x = torch.randn(16, 12)
            made = model[1](model[0](x)) if change == "apart" else model(x)
            (adam if clear == "optimizer" else model).zero_grad()
            functional.mse_loss(made, x).backward()
            adam.step()

    assert levels(loop, tmp_path) == [level]


def test_a_copy_that_is_compared_to_may_stay_as_it_is(tmp_path):
    def loop():
        torch.manual_seed(1)
        policy = network(12, 24, 4)
        other = copy.deepcopy(policy)
        adam = torch.optim.Adam(policy.parameters(), lr=1e-2)
        for _ in range(14):
            x = torch.randn(16, 12)
            loss = functional.mse_loss(policy(x) - other(x), x[:, :4])
            adam.zero_grad()
            loss.backward()
            adam.step()

    assert levels(loop, tmp_path) == ["note"]


def test_what_was_loaded_may_stay_as_it_is(tmp_path):
    def loop():
        first, second = network(12, 24, 4), network(4, 24, 12)
        second.load_state_dict(copy.deepcopy(second).state_dict())
        training(first, second, first.parameters(), clear="optimizer")

    assert levels(loop, tmp_path) == ["note"]


def test_what_is_in_eval_mode_may_stay_as_it_is(tmp_path):
    def loop():
        first, second = network(12, 24, 4), network(4, 24, 12).eval()
        training(first, second, first.parameters(), clear="optimizer")

    assert levels(loop, tmp_path) == ["note"]


def test_what_is_named_for_it_may_stay_as_it_is(tmp_path):
    def loop():
        first, frozen_judge = network(12, 24, 4), network(4, 24, 12)
        torch.manual_seed(1)
        adam = torch.optim.Adam(first.parameters(), lr=1e-2)
        for _ in range(14):
            x = torch.randn(16, 12)
            loss = functional.mse_loss(frozen_judge(first(x)), x)
            adam.zero_grad()
            loss.backward()
            adam.step()

    assert levels(loop, tmp_path) == ["note"]


@pytest.mark.nightly
@pytest.mark.parametrize(("hidden", "level"), [(80, "error"), (120, "note")])
def test_what_is_many_times_larger_may_stay_as_it_is(hidden, level, tmp_path):
    """The encoder has 412 elements, the others 1,372 and 2,052."""

    def loop():
        first, second = network(12, 24, 4), network(4, hidden, 12)
        assert (sum(p.numel() for p in second.parameters()) > 4 * 412) is (level == "note")
        training(first, second, first.parameters(), clear="optimizer")

    assert levels(loop, tmp_path) == [level]


def test_what_a_second_optimizer_trains_is_held(tmp_path):
    def loop():
        first, second = network(12, 24, 4), network(4, 24, 12)
        others = torch.optim.SGD(second.parameters(), lr=0.1)
        training(first, second, first.parameters(), clear="optimizer")
        functional.mse_loss(second(torch.randn(8, 4)), torch.randn(8, 12)).backward()
        others.step()

    assert levels(loop, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "is_fixed"),
    [
        ("encode_no_grad", True),
        ("teacher", True),
        ("target_net", True),
        ("model.ema", True),
        ("schema", False),
        ("decoder", False),
        ("referee", False),
        ("gemara", False),
        ("fixed_table", True),
        ("FixedPoint.forward", False),  # the solver of an implicit layer
    ],
)
def test_names_that_say_that_something_is_not_to_learn(name, is_fixed):
    assert is_named_fixed([name]) is is_fixed


class Tagger(nn.Module):
    """An embedding, a body of six tensors, and a name that a test may give to the embedding."""

    def __init__(self, name="embed"):
        super().__init__()
        self.name = name
        self.add_module(name, nn.Embedding(12, 8))
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(self.body(getattr(self, self.name)(tokens)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "groups", "clear", "expected"),
    some_on_push(
        [
            ("embed", 2, "optimizer", ["error"]),
            ("embed", 2, "all", ["note"]),  # the author knows of its gradients
            ("embed", 1, "optimizer", ["note"]),  # a list of what should learn
            ("fixed_embed", 2, "optimizer", ["note"]),
        ],
        {0, 1},
    ),
)
def test_a_table_that_falls_through_the_groups_is_an_error(name, groups, clear, expected, tmp_path):
    def loop():
        torch.manual_seed(2)
        model = Tagger(name)
        kept = [(n, p) for n, p in model.named_parameters() if not n.startswith(name)]
        decay, plain = ([p for _, p in kept if (p.ndim > 1) is wanted] for wanted in (True, False))
        given = [{"params": decay}, {"params": plain, "weight_decay": 0.0}]
        adam = torch.optim.AdamW(given if groups == 2 else [*decay, *plain], lr=1e-2)
        for _ in range(14):
            tokens = torch.randint(0, 12, (16,))
            loss = functional.cross_entropy(model(tokens), tokens % 3)
            (adam if clear == "optimizer" else model).zero_grad()
            loss.backward()
            adam.step()

    assert levels(loop, tmp_path) == expected


class Sorted(nn.Module):
    """Six tensors of which a third belongs to the last layer, whose name a test may choose."""

    def __init__(self, name="head"):
        super().__init__()
        self.name = name
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 16)
        self.add_module(name, nn.Linear(16, 3))

    def forward(self, x):
        return getattr(self, self.name)(self.second(self.first(x).tanh()).tanh())


@pytest.mark.parametrize(
    ("name", "left_out", "groups", "expected"),
    some_on_push(
        [
            ("head", "head", 2, ["error"]),
            ("head", "head", 1, ["warning"]),  # no sorting shows that all were meant
            ("head", "first", 2, ["note"]),  # builds on nothing that learns
            ("fixed_head", "fixed_head", 2, ["warning"]),
            ("head", "", 2, []),
        ],
        {0, 1},
    ),
)
def test_a_layer_that_falls_through_the_groups_is_an_error(
    name, left_out, groups, expected, tmp_path
):
    def loop():
        torch.manual_seed(2)
        model = Sorted(name)
        layers = [list(one.parameters()) for n, one in model.named_children() if n != left_out]
        later = [parameter for one in layers[1:] for parameter in one]
        given = [{"params": layers[0]}, {"params": later}]
        adam = torch.optim.AdamW(given if groups == 2 else [*layers[0], *later], lr=1e-2)
        for _ in range(14):
            x = torch.randn(16, 8)
            loss = functional.cross_entropy(model(x), x[:, :3].argmax(1))
            model.zero_grad()
            loss.backward()
            adam.step()

    assert levels(loop, tmp_path) == expected


class Centres(nn.Module):
    """A loss with weights of its own: the cosine to a centre for each class."""

    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(6, 4))

    def forward(self, embedding, classes):
        cosines = functional.normalize(embedding) @ functional.normalize(self.centres).T
        return functional.cross_entropy(8 * cosines, classes)


@pytest.mark.parametrize(
    ("held", "clear", "expected"),
    some_on_push(
        [("net", "optimizer", ["error"]), ("net", "all", ["error"]), ("both", "optimizer", [])],
        {0, 2},
    ),
)
def test_centres_of_a_loss_that_no_optimizer_holds_are_an_error(held, clear, expected, tmp_path):
    def loop():
        torch.manual_seed(1)
        net, criterion = network(12, 24, 4), Centres()
        both = nn.ModuleList([net, criterion])
        adam = torch.optim.Adam((net if held == "net" else both).parameters(), lr=1e-2)
        for _ in range(14):
            x, classes = torch.randn(16, 12), torch.randint(0, 6, (16,))
            loss = criterion(net(x), classes)
            (adam if clear == "optimizer" else both).zero_grad()
            loss.backward()
            adam.step()

    assert levels(loop, tmp_path) == expected
