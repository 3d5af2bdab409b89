"""GS209: inputs that require grad for nothing, and those whose gradient is read."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.recording.records import Site
from gradscope.rules.reach.requires_grad_flags import remedy_at

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def differentiable() -> torch.Tensor:
    return X.clone().requires_grad_()


def codes(findings) -> list[str]:
    return [finding.rule for finding in findings]


def test_input_that_requires_grad_is_a_note(findings_of):
    (found,) = findings_of(
        nn.Linear(8, 4), (differentiable(), CLASSES), functional.cross_entropy, probe_steps=0
    )
    assert (found.rule, found.severity, found.parameters) == ("GS209", "note", ("batch.0",))
    assert dict(found.evidence) == {"tensors": 1, "elements": 128}


def test_input_that_does_not_is_healthy(findings_of):
    assert findings_of(nn.Linear(8, 4), (X, CLASSES), functional.cross_entropy) == ()


def test_gradient_penalty_reads_the_gradient_of_its_input(findings_of):
    def loss(model, batch):
        x, target = batch
        output = model(x)
        (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        return functional.cross_entropy(output, target) + gradient.square().mean()

    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    findings = findings_of(model, (differentiable(), CLASSES), loss, probe_steps=0)
    assert "GS209" not in codes(findings)


def test_input_with_a_hook_is_read(findings_of):
    x = differentiable()
    handle = x.register_hook(lambda gradient: None)
    findings = findings_of(nn.Linear(8, 4), (x, CLASSES), functional.cross_entropy, probe_steps=0)
    handle.remove()
    assert "GS209" not in codes(findings)


def test_input_of_a_frozen_model_is_what_is_optimised(findings_of):
    model = nn.Linear(8, 4).requires_grad_(False)
    findings = findings_of(
        model, (differentiable(), CLASSES), functional.cross_entropy, probe_steps=0
    )
    assert "GS209" not in codes(findings)


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("fake.requires_grad_()", "remove `.requires_grad_()`"),
        ("x = x.detach().requires_grad_(True)", "remove `.requires_grad_()`"),
        ("x = torch.randn(4, requires_grad=True)", "remove `requires_grad=True` where"),
        ("loss = model(x)", "remove `requires_grad=True` where"),
    ],
)
def test_remedy_names_the_call_that_sets_it(source, remedy):
    site = Site(file="train.py", line=3, function="train", source=source)
    assert remedy_at(site).startswith(remedy)
    assert remedy_at(None).startswith("remove `requires_grad=True` where")
