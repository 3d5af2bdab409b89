"""GS214: a frozen head, and what only looks like one."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def stack(depth: int = 2, frozen: tuple[int, ...] = ()) -> nn.Sequential:
    """Layers of which some are frozen; the last is the head."""
    model = nn.Sequential()
    for _ in range(depth):
        model.extend([nn.Linear(8, 8), nn.GELU()])
    model.append(nn.Linear(8, 4))
    for position in frozen:
        model[2 * position].requires_grad_(False)
    return model


def codes(findings) -> list[str]:
    return [finding.rule for finding in findings]


def test_frozen_head_over_layers_that_learn_is_a_warning(findings_of):
    (found,) = findings_of(
        stack(2, frozen=(2,)), (X, CLASSES), functional.cross_entropy, probe_steps=0
    )
    assert (found.rule, found.severity) == ("GS214", "warning")
    assert found.parameters == ("4.weight", "4.bias")


@pytest.mark.parametrize(("frozen", "fires"), [((0, 11), True), ((0, 1, 11), False)])
def test_only_a_tenth_of_the_other_layers_may_be_frozen(findings_of, frozen, fires):
    model = stack(11, frozen=frozen)
    if fires:  # one of eleven is less than a tenth
        assert len(frozen) - 1 <= 0.1 * 11
    findings = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert ("GS214" in codes(findings)) is fires


@pytest.mark.parametrize("frozen", [(), (0,), (0, 1), (1, 2), (0, 1, 2)])
def test_backbones_and_networks_that_are_frozen_are_healthy(findings_of, frozen):
    if frozen == (0, 1, 2):
        model = nn.Sequential(nn.Linear(8, 8), stack(2, frozen))  # a frozen discriminator
    else:
        model = stack(2, frozen)
    assert findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=0) == ()


def test_head_that_is_tied_is_healthy(findings_of):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.body = nn.Embedding(16, 8), stack(2)[:4]
            self.head = nn.Linear(8, 16, bias=False)
            self.head.weight = self.table.weight
            self.table.weight.requires_grad_(False)

        def forward(self, index):
            return self.head(self.body(self.table(index)))

    batch = (torch.arange(16), torch.arange(16))
    assert findings_of(Tied(), batch, functional.cross_entropy, probe_steps=0) == ()


def test_perceptual_layer_that_measures_two_images_is_healthy(findings_of):
    class Perceptual(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.measure = stack(3), nn.Linear(4, 4).requires_grad_(False)

        def forward(self, x):
            target = self.measure(x[:, :4])
            return functional.mse_loss(self.measure(self.body(x)), target)

    assert findings_of(Perceptual(), X, probe_steps=0) == ()


REPLACED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.norm(self.first(x)).relu())

def build_model():
    model = Net(100)
    {before}
    model.head = nn.Linear(16, 4)
    {after}
    return model

batch = (torch.randn(16, 8), torch.arange(16) % 4)
criterion = nn.CrossEntropyLoss()
"""
FREEZE = """for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.requires_grad = False  # <-"""


def test_new_head_that_the_freezing_loop_froze_too_is_found_at_that_line(inspect_file, tmp_path):
    report = inspect_file(REPLACED.format(before="pass", after=FREEZE))
    found = only(report.findings, "GS214")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert found.parameters == ("head.weight", "head.bias")
    assert [position.source for position in found.related] == ["model.head = nn.Linear(16, 4)"]


def test_head_that_was_replaced_after_freezing_is_healthy(inspect_file):
    report = inspect_file(REPLACED.format(before=FREEZE, after="pass"))
    assert "GS214" not in codes(report.findings)


def test_norms_alone_may_learn_under_an_old_head(inspect_file):
    text = REPLACED.replace("    model.head = nn.Linear(16, 4)\n", "")
    report = inspect_file(text.format(before="pass", after=FREEZE))
    assert "GS214" not in codes(report.findings)


ON_LOADED = """
import copy
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.pool = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.pool(self.second(self.first(x).relu()).relu()).tanh()

class Net(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.encoder(x))

def build_model():
    model = Net(Encoder())
    {load}
    for name, parameter in model.named_parameters():
        if {frozen}:
            parameter.requires_grad = False  # <-
    {after}
    return model

batch = (torch.randn(16, 8), torch.arange(16) % 4)
criterion = nn.CrossEntropyLoss()
"""
BACKBONE = "model.encoder.load_state_dict(copy.deepcopy(model.encoder.state_dict()))"


def of_loaded(inspect_file, *, load=BACKBONE, frozen="'pool' not in name", after="pass"):
    text = ON_LOADED.format(load=load, frozen=frozen, after=after)
    return [one for one in inspect_file(text).findings if one.rule == "GS214"]


def test_random_head_that_a_loop_froze_with_the_loaded_layers_is_found(inspect_file, tmp_path):
    (found,) = of_loaded(inspect_file)
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert found.parameters == ("head.weight", "head.bias")


LOOK_ALIKES = {
    "a head that was loaded too": {"load": BACKBONE.replace(".encoder", "")},
    "nothing was loaded": {"load": "pass"},
    "a head that learns": {"frozen": "'encoder' in name and 'pool' not in name"},
    "a head that its own line freezes": {
        "frozen": "'encoder' in name and 'pool' not in name",
        "after": "model.head.requires_grad_(False)",
    },
}


@pytest.mark.parametrize("changes", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_head_over_loaded_layers_may_be_fixed_on_purpose(inspect_file, changes):
    assert of_loaded(inspect_file, **changes) == []


TWO_LAYERS = ON_LOADED.replace(
    "self.encoder, self.head = encoder, nn.Linear(8, 4)",
    "self.encoder, self.hidden, self.head = encoder, nn.Linear(8, 8), nn.Linear(8, 4)",
).replace("self.head(self.encoder(x))", "self.head(self.hidden(self.encoder(x)).relu())")


def before_head(inspect_file, *, load=BACKBONE, frozen="'head' not in name", after="pass"):
    text = TWO_LAYERS.format(load=load, frozen=frozen, after=after)
    return [one for one in inspect_file(text).findings if one.rule == "GS214"]


def test_random_layer_before_the_head_that_a_loop_froze_is_found(inspect_file, tmp_path):
    (found,) = before_head(inspect_file)
    assert found.severity == "warning"
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert found.parameters == ("hidden.weight", "hidden.bias")


@pytest.mark.parametrize(
    "freeze",
    [
        "parameter.requires_grad = name.startswith('head')",
        "parameter.requires_grad_('head' in name)",
        "parameter.requires_grad_(requires_grad='head' in name)",
    ],
)
def test_a_line_that_computes_what_to_freeze_is_found(inspect_file, tmp_path, freeze):
    text = TWO_LAYERS.format(load=BACKBONE, frozen="True", after="pass")
    text = text.replace("parameter.requires_grad = False", freeze)
    found = only(inspect_file(text).findings, "GS214")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")


@pytest.mark.parametrize(
    "changes",
    [
        {"frozen": "'encoder' in name"},
        {"load": "pass"},
        {"load": BACKBONE.replace(".encoder", "")},
        {"frozen": "'encoder' in name", "after": "model.hidden.requires_grad_(False)"},
        {"frozen": "'hidden' in name"},
    ],
    ids=["it learns", "nothing is loaded", "it is loaded", "its own line", "the encoder learns"],
)
def test_layer_before_the_head_may_be_frozen_on_purpose(inspect_file, changes):
    assert before_head(inspect_file, **changes) == []


@pytest.mark.parametrize("returns_loss", [True, False])
def test_frozen_centres_of_a_loss_are_healthy(findings_of, returns_loss):
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres = nn.Parameter(torch.eye(4), requires_grad=False)

        def forward(self, output, target):
            distances = torch.cdist(output, self.centres)
            return functional.cross_entropy(-distances, target) if returns_loss else -distances

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.distances = stack(3), Distances()

        def forward(self, batch):
            return self.distances(self.body(batch[0]), batch[1])

    def loss(model, batch):
        found = model(batch)
        return found if returns_loss else functional.cross_entropy(found, batch[1])

    findings = findings_of(Model(), (X, CLASSES), loss, probe_steps=0)
    assert ("GS214" in codes(findings)) is not returns_loss


class Centres(nn.Module):
    """Cosines to a vector for each class."""

    def __init__(self, *, learn):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8), requires_grad=learn)

    def forward(self, x):
        return 10 * functional.linear(functional.normalize(x), functional.normalize(self.weight))


@pytest.mark.parametrize("learn", [False, True])
def test_a_head_beside_the_model_is_shown_where_its_weight_is_made(tmp_path, learn):
    def train():
        torch.manual_seed(0)
        model, head = stack(), Centres(learn=learn)
        model[-1] = nn.Linear(8, 8)
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            functional.cross_entropy(head(model(X)), CLASSES).backward()
            optimizer.step()

    told = [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS214"]
    assert len(told) == (not learn)
    for one in told:
        assert "requires_grad=learn" in one.location.source
        assert not one.related
