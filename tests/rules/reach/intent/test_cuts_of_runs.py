"""GS201 in training runs: how severe a cut is by what holds its parameters."""

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


class Scaled(nn.Module):
    """Two layers and a number that the model multiplies its output by."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.seen = 0.0

    def forward(self, x):
        return self.body(x) * self.scale


class ReadsScale(Scaled):
    def forward(self, x):
        return self.body(x) * self.scale.item()


class LogsScale(Scaled):
    def forward(self, x):
        self.seen = self.scale.item()
        return self.body(x) * self.scale


class Encoding(nn.Module):
    """An encoder and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(x))


class WithoutGrad(Encoding):
    def forward(self, x):
        with torch.no_grad():
            features = self.encoder(x)
        return self.head(features)


class ThroughArray(Encoding):
    def forward(self, x):
        features = self.encoder(x).detach().numpy()
        return self.head(torch.from_numpy(features))


def training(model, parameters, *, after=None, steps=12):
    torch.manual_seed(0)
    adam = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = functional.mse_loss(model(x), x[:, :3])
        adam.zero_grad()
        loss.backward()
        adam.step()
        if after is not None:
            after(model)


def cuts(loop, folder):
    return [one for one in findings_of(loop, folder) if one.rule == "GS201"]


def shrink(model):
    model.scale.data.mul_(0.9)


@pytest.mark.parametrize(
    ("kind", "after", "levels"),
    some_on_push(
        [
            (ReadsScale, None, ["error"]),
            (ReadsScale, shrink, ["note"]),
            (LogsScale, None, []),
            (Scaled, None, []),
        ],
        2,
    ),
)
def test_a_parameter_that_is_only_read_as_a_number(kind, after, levels, tmp_path):
    def loop():
        model = kind()
        training(model, model.parameters(), after=after)

    assert [one.severity for one in cuts(loop, tmp_path)] == levels


def test_a_number_that_no_optimizer_holds_is_no_error(tmp_path):
    def loop():
        model = ReadsScale()
        training(model, model.body.parameters())

    assert "error" not in [one.severity for one in cuts(loop, tmp_path)]


def test_an_encoder_that_the_optimizer_holds_is_a_warning_with_that_evidence(tmp_path):
    def loop():
        model = WithoutGrad()
        training(model, model.parameters())

    (found,) = cuts(loop, tmp_path)
    assert found.severity == "warning"
    assert "but its 4 parameters are in Adam(lr=0.01)" in found.message


@pytest.mark.parametrize(("is_loaded", "level"), [(False, "error"), (True, "warning")])
def test_a_way_through_numpy_is_a_way_to_freeze_loaded_weights_alone(is_loaded, level, tmp_path):
    def loop():
        model = ThroughArray()
        if is_loaded:
            torch.save(model.encoder.state_dict(), tmp_path / "encoder.pt")
            model.encoder.load_state_dict(torch.load(tmp_path / "encoder.pt"))
        training(model, model.parameters())

    (found,) = cuts(loop, tmp_path)
    assert found.severity == level


@pytest.mark.parametrize("kind", [WithoutGrad, ThroughArray])
def test_an_encoder_with_a_group_of_its_own_is_an_error(kind, tmp_path):
    def loop():
        model = kind()
        parts = (model.encoder, model.head)
        training(model, [{"params": part.parameters()} for part in parts])

    assert [one.severity for one in cuts(loop, tmp_path)] == ["error"]


def test_an_encoder_without_grad_that_was_loaded_may_stay_as_it_is(tmp_path):
    def loop():
        model = WithoutGrad()
        model.encoder.load_state_dict(Encoding().encoder.state_dict())
        training(model, model.parameters())

    assert [one.severity for one in cuts(loop, tmp_path)] == ["note"]


def test_an_encoder_without_grad_that_no_optimizer_holds_may_stay_as_it_is(tmp_path):
    def loop():
        model = WithoutGrad()
        training(model, model.head.parameters())

    assert not cuts(loop, tmp_path)


@pytest.mark.parametrize("kind", [Encoding, Scaled])
def test_a_model_without_a_cut_has_no_finding(kind, tmp_path):
    def loop():
        model = kind()
        training(model, model.parameters())

    assert not [one for one in findings_of(loop, tmp_path) if one.severity != "note"]


class TwoHeads(nn.Module):
    """A body, and heads for classes and for boxes."""

    def __init__(self):
        super().__init__()
        self.body, self.classes, self.boxes = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.body(x).tanh()
        return self.classes(hidden), self.boxes(hidden)


def decoded(boxes):
    numbers = boxes.detach().numpy()
    return torch.from_numpy(numpy.exp(numbers))


def distance_after_decoding(boxes, targets):
    return (decoded(boxes) - torch.from_numpy(targets)).abs().mean()


@pytest.mark.parametrize("of_boxes", [distance_after_decoding, None])
def test_a_function_that_computes_with_arrays_is_a_cut_and_a_loop_is_none(of_boxes, tmp_path):
    def loop():
        torch.manual_seed(0)
        model = TwoHeads()
        adam = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(8):
            x, targets = torch.randn(16, 6), numpy.ones((16, 4), dtype="float32")
            classes, boxes = model(x)
            loss = functional.cross_entropy(classes, x[:, :3].argmax(1))
            if of_boxes is None:
                numpy.exp(boxes.detach().numpy())
                loss = loss + torch.from_numpy(targets).mean()
            else:
                loss = loss + of_boxes(boxes, targets)
            adam.zero_grad()
            loss.backward()
            adam.step()

    found = cuts(loop, tmp_path)
    if of_boxes is None:
        assert not found
    else:
        assert [one.severity for one in found] == ["error"]
        assert found[0].location.source == "numbers = boxes.detach().numpy()"
        assert {name.split(".")[-2] for name in found[0].parameters} == {"boxes"}


def stored_numbers(embeddings):
    return [row.tolist() for row in embeddings]


def made_of(stored):
    return torch.tensor(stored) if isinstance(stored, list) else stored


@pytest.mark.parametrize(
    ("store", "expected"), [(stored_numbers, ["tolist"]), (lambda embeddings: embeddings, [])]
)
def test_numbers_that_one_function_lists_and_another_makes_a_tensor_of(store, expected, tmp_path):
    seen = []

    def loop():
        torch.manual_seed(0)
        support, query = nn.Linear(6, 4), nn.Linear(6, 4)
        adam = torch.optim.Adam([*support.parameters(), *query.parameters()], lr=1e-2)
        for _ in range(12):
            prototypes = made_of(store(support(torch.randn(3, 6))))
            scores = -torch.cdist(query(torch.randn(9, 6)), prototypes)
            # A list that is made a tensor for a log takes no part in the loss.
            seen.append(torch.tensor(stored_numbers(scores)).mean())
            adam.zero_grad()
            functional.cross_entropy(scores, torch.arange(9) % 3).backward()
            adam.step()

    found = [one for one in findings_of(loop, tmp_path) if one.rule == "GS201"]
    assert [one.message.partition("()")[0].split()[-1] for one in found] == expected
    assert all(one.severity == "warning" and len(one.parameters) == 2 for one in found)
