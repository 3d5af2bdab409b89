"""A reentrant checkpoint brings no gradient where none of its inputs needs one (GS201, GS501)."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.nightly import some_on_push
from tests.rules.inspecting import only

BATCH = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4

pytestmark = [
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),
    pytest.mark.filterwarnings("ignore:None of the outputs"),
]


class Net(nn.Module):
    """A stem that may be frozen, an encoder that a function runs, and a head."""

    def __init__(self, run, *, stem: bool = False):
        super().__init__()
        self.stem = nn.Linear(8, 8) if stem else nn.Identity()
        self.encoder = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8))
        self.head = nn.Linear(8, 4)
        self.run = run

    def forward(self, x):
        return self.head(self.run(self.encoder, self.stem(x)))


def reentrant(encoder, x):
    return checkpoint(encoder, x, use_reentrant=True)


def of_function(encoder, x):
    return checkpoint(lambda x: functional.gelu(encoder(x)), x, use_reentrant=True)


def nested(encoder, x):
    def inside(x):
        return checkpoint(encoder, x, use_reentrant=True)

    return checkpoint(inside, x, use_reentrant=True)


def modern(encoder, x):
    return checkpoint(encoder, x, use_reentrant=False)


def given_gradient(encoder, x):
    return checkpoint(encoder, x.clone().requires_grad_(), use_reentrant=True)


def without_grad(encoder, x):
    with torch.no_grad():
        return checkpoint(encoder, x, use_reentrant=True)


def after_another(encoder, x):
    with torch.no_grad():
        x = functional.normalize(x)
    return checkpoint(encoder, x, use_reentrant=True)


def gs201(findings_of, model):
    optimizer = torch.optim.Adam(model.parameters())
    found = findings_of(model, BATCH, functional.cross_entropy, optimizer=optimizer, probe_steps=1)
    return [one for one in found if one.rule == "GS201"]


@pytest.mark.parametrize(
    "run",
    some_on_push([reentrant, of_function, nested, after_another], {0, 2}),
    ids=lambda run: run.__name__,
)
def test_one_whose_input_needs_no_gradient_is_an_error_at_its_call(findings_of, run):
    (found,) = gs201(findings_of, Net(run))
    assert found.severity == "error"
    assert "a reentrant checkpoint gives no gradient where its input needs none" in found.message
    assert found.remedy == "give it use_reentrant=False"
    assert "checkpoint(" in found.location.source
    assert len(found.parameters) == 4
    assert "operation" not in {name for name, value in found.evidence if value is not None}


@pytest.mark.parametrize("run", [modern, given_gradient], ids=lambda run: run.__name__)
def test_one_that_brings_a_gradient_is_healthy(findings_of, run):
    assert gs201(findings_of, Net(run)) == []


def test_one_behind_a_layer_that_learns_is_healthy_and_behind_a_frozen_one_is_not(findings_of):
    model = Net(reentrant, stem=True)
    assert gs201(findings_of, model) == []
    model.stem.requires_grad_(False)
    (found,) = gs201(findings_of, model)
    assert found.severity == "error"


def test_one_under_no_grad_is_not_to_blame(findings_of):
    (found,) = gs201(findings_of, Net(without_grad))
    assert "runs under no_grad" in found.message
    assert "out of `no_grad`" in found.remedy


def test_a_cut_inside_of_one_that_brings_a_gradient_is_not_laid_to_it(findings_of):
    class Cutting(nn.Module):
        def __init__(self):
            super().__init__()
            self.lost, self.kept = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.kept(x) + self.lost(x).detach()

    model = Net(given_gradient)
    model.encoder = Cutting()
    for found in gs201(findings_of, model):
        assert "reentrant checkpoint" not in found.message


def test_a_frozen_encoder_in_one_is_healthy(findings_of):
    model = Net(reentrant)
    model.encoder.requires_grad_(False)
    assert gs201(findings_of, model) == []


def test_a_model_inside_of_one_has_no_graph(inspect_file):
    text = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4)

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=True)

model, loss_fn = Net(), nn.CrossEntropyLoss()
batch = torch.randn(16, 8), torch.arange(16) % 4
"""
    found = only(inspect_file(text).findings, "GS501")
    assert "a reentrant checkpoint gives no gradient" in found.message
    assert found.remedy == "give it use_reentrant=False"
    assert found.location.source == "return checkpoint(self.body, x, use_reentrant=True)"
