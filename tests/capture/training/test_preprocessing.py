"""Modules besides the model: sample transforms, losses, feature extractors."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset, default_collate

from gradscope.capture.training.models.models import Models
from tests.nightly import some_on_push
from tests.rules.watching import findings_of

ROWS, SAMPLES, EPOCHS = 16, 64, 6


class Normalize(nn.Module):
    def __init__(self, mean=0.5, std=2.0):
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x):
        return (x - self.mean) / self.std


class Noise(nn.Module):
    """An augmentation, with a buffer and no parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.01))

    def forward(self, x):
        return x + self.scale * torch.randn_like(x)


class Samples(Dataset):
    def __init__(self, transform):
        self.transform, self.x = transform, torch.randn(SAMPLES, 6)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.transform(self.x[index]), index % 3


def unchanged(x):
    return x


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def training(transform=unchanged, batch_transform=unchanged, *, is_undone=False):
    """Train with an evaluation at the end of each epoch, after which `train()` may be missing."""

    def collate(samples):
        x, y = default_collate(samples)
        return batch_transform(x), y

    def loop():
        torch.manual_seed(0)
        model = net()
        criterion = nn.CrossEntropyLoss()
        parameters = [*model.parameters()]
        optimizer = SGD(parameters, lr=0.1)
        loader = DataLoader(Samples(transform), batch_size=ROWS, collate_fn=collate)
        for _ in range(EPOCHS):
            if is_undone:
                model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            model.eval()

    return loop


def fresh_normalize(x):
    return Normalize()(x)


def unfrozen_features():
    """A feature extractor that somebody forgot to freeze."""
    extractor = nn.Linear(6, 6)
    return lambda x: extractor(x).detach()


def frozen_features():
    extractor = nn.Sequential(nn.Linear(6, 6), nn.Dropout()).requires_grad_(False).eval()
    return extractor


TRANSFORMS = {
    "normalize": Normalize,
    "several": lambda: nn.Sequential(Normalize(), Noise()),
    "made for each sample": lambda: fresh_normalize,
    "frozen features": frozen_features,
    "unfrozen features": unfrozen_features,
}


@pytest.mark.parametrize("is_of_batch", [False, True], ids=["in the dataset", "in collate"])
@pytest.mark.parametrize("name", some_on_push(TRANSFORMS, 4))
def test_the_model_is_what_is_trained(run, name, is_of_batch):
    transform = TRANSFORMS[name]()
    loop = training(batch_transform=transform) if is_of_batch else training(transform)
    recording = run(loop).recording
    batches = SAMPLES // ROWS
    rows = {dict(one.numbers)["rows"] for one in recording.events if one.kind == "backward"}
    assert rows == {ROWS}
    assert recording.target.batch == f"float32[{ROWS}, 6]"
    modes = [one for one in recording.events if one.kind == "mode" and one.subject == "model"]
    assert len(modes) == (EPOCHS - 1) * batches
    if "features" not in name:
        assert recording.target.model == "Sequential"
        assert {one.path.partition(".")[0] for one in recording.modules} == {"model"}


@pytest.mark.parametrize("name", some_on_push(TRANSFORMS, 4))
def test_training_in_eval_mode_is_found_behind_a_transform(tmp_path, name):
    found = findings_of(training(TRANSFORMS[name]()), tmp_path)
    (one,) = [one for one in found if one.rule == "GS312"]
    assert one.message.startswith("model is trained in eval mode")
    assert one.location.source == "model.eval()"


@pytest.mark.nightly
@pytest.mark.parametrize("name", some_on_push(TRANSFORMS, 4))
def test_a_loop_that_returns_to_training_mode_is_healthy(tmp_path, name):
    found = findings_of(training(TRANSFORMS[name](), is_undone=True), tmp_path)
    assert not [one for one in found if one.rule.startswith("GS3")]


def test_a_transform_in_eval_mode_is_no_model_in_eval_mode(tmp_path):
    transform = nn.Sequential(Normalize(), nn.Dropout(0.1)).eval()
    found = findings_of(training(transform, is_undone=True), tmp_path)
    assert not [one for one in found if one.rule == "GS312"]


def test_a_model_within_a_module_that_does_not_register_it_is_a_model(run):
    class Task(nn.Module):
        def __init__(self, *parts):
            super().__init__()
            self.parts = parts

        def forward(self, x, y):
            return cross_entropy(self.parts[0](x), y)

    def loop():
        model = net().eval()
        task = Task(model)
        optimizer = SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            task(torch.randn(ROWS, 6), torch.arange(ROWS) % 3).backward()
            optimizer.step()

    found = run(loop)
    assert len(found.events("mode")) == 3
    assert {one["rows"] for one in found.numbers("backward")} == {ROWS}
    assert len(found.recording.parameters) == 4


@pytest.mark.nightly
def test_a_model_that_makes_its_layers_when_called_is_one_model(run):
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList()

        def forward(self, x):
            if not self.layers:
                self.layers.extend([nn.Linear(6, 8), nn.Linear(8, 3)])
            for layer in self.layers:
                x = layer(x)
            return x

    def loop():
        model = Late()
        model(torch.randn(1, 6))
        optimizer = SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(model(torch.randn(ROWS, 6)), torch.arange(ROWS) % 3).backward()
            optimizer.step()

    found = run(loop)
    assert found.recording.target.model == "Late"
    assert next(one.name for one in found.recording.parameters) == "model.layers.0.weight"


def test_a_loss_stands_for_the_model_where_there_is_no_other(run):
    def loop():
        weight = torch.zeros(6, 3, requires_grad=True)
        criterion = nn.CrossEntropyLoss()
        optimizer = SGD([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            criterion(torch.randn(ROWS, 6) @ weight, torch.arange(ROWS) % 3).backward()
            optimizer.step()

    recording = run(loop).recording
    assert [one.path for one in recording.modules] == ["criterion"]
    assert [one.numel for one in recording.parameters] == [18]


def test_a_transform_is_captured_once(run, monkeypatch):
    seen = []
    plain = Models._enter_root

    def enter_root(models, module, *args):
        seen.append(module)
        return plain(models, module, *args)

    monkeypatch.setattr(Models, "_enter_root", enter_root)
    transform = Normalize()
    run(training(transform))
    assert sum(one is transform for one in seen) == 1
