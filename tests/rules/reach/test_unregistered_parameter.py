"""GS207: what the model computes with and does not give to an optimizer."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


class Keeping(nn.Module):
    """Keeps a tensor or layers under an attribute, and uses them in a way of choice."""

    def __init__(self, kept, use):
        super().__init__()
        self.head, self.kept, self.use = nn.Linear(8, 4), kept, use

    def forward(self, x):
        return self.head(self.use(self.kept, x))


class Holder:
    def __init__(self, layer):
        self.layer = layer


def closure_of(layer):
    def field(x):
        return layer(x)

    return field


def called(layer, x):
    return layer(x)


KEPT = {
    "list": (lambda: [nn.Linear(8, 8)], lambda k, x: k[0](x), "kept.0.weight"),
    "tuple": (lambda: (nn.Linear(8, 8),), lambda k, x: k[0](x), "kept.0.weight"),
    "dict": (lambda: {"a": nn.Linear(8, 8)}, lambda k, x: k["a"](x), "kept.a.weight"),
    "nested": (lambda: {"a": [nn.Linear(8, 8)]}, lambda k, x: k["a"][0](x), "kept.a.0.weight"),
    "object": (lambda: Holder(nn.Linear(8, 8)), lambda k, x: k.layer(x), "kept.layer.weight"),
    "tensor": (lambda: torch.ones(8, requires_grad=True), lambda k, x: k * x, "kept"),
    "parameters": (lambda: [nn.Parameter(torch.ones(8))], lambda k, x: k[0] * x, "kept.0"),
    "closure": (lambda: closure_of(nn.Linear(8, 8)), lambda k, x: k(x), "kept.layer.weight"),
    "defaults": (
        lambda: [lambda x, *, scale=2.0, layer=nn.Linear(8, 8): layer(x) * scale],  # noqa: B008
        lambda k, x: k[0](x),
        "kept.0.layer.weight",
    ),
    "partial": (lambda: partial(called, nn.Linear(8, 8)), lambda k, x: k(x), "kept.0.weight"),
    "method": (lambda: nn.Linear(8, 8).forward, lambda k, x: k(x), "kept.__self__.weight"),
}


@pytest.mark.parametrize(("make", "use", "name"), some_on_push(KEPT.values(), 4), ids=list(KEPT))
def test_leaf_under_a_plain_attribute_is_an_error(findings_of, make, use, name):
    (found,) = findings_of(
        Keeping(make(), use), (X, CLASSES), functional.cross_entropy, probe_steps=1
    )
    assert (found.rule, found.severity) == ("GS207", "error")
    assert found.parameters[0] == name
    assert found.location.source.startswith("self.head, self.kept, self.use =")


COMPUTED = {
    "scaled": (lambda: nn.Parameter(torch.ones(8)) * 0.02, lambda k, x: k * x, "kept"),
    "cast": (lambda: nn.Parameter(torch.ones(8)).double(), lambda k, x: (k * x).float(), "kept"),
    "view": (lambda: nn.Parameter(torch.ones(8)).unsqueeze(0), lambda k, x: k * x, "kept"),
    "plain": (lambda: torch.ones(8, requires_grad=True) / 3, lambda k, x: k * x, "kept"),
    "list": (lambda: [nn.Parameter(torch.ones(8)) * 2], lambda k, x: k[0] * x, "kept.0"),
    "dict": (lambda: {"a": nn.Parameter(torch.ones(8)).exp()}, lambda k, x: k["a"] * x, "kept.a"),
}


@pytest.mark.parametrize(
    ("make", "use", "name"), some_on_push(COMPUTED.values(), 3), ids=list(COMPUTED)
)
def test_what_is_computed_of_a_lost_parameter_is_an_error(findings_of, make, use, name):
    """That the second backward fails in what is kept is a consequence."""
    (found,) = findings_of(
        Keeping(make(), use), (X, CLASSES), functional.cross_entropy, probe_steps=1
    )
    assert (found.rule, found.severity) == ("GS207", "error")
    assert found.parameters == (name,)
    assert found.location.source.startswith("self.head, self.kept, self.use =")
    assert f"{name} is computed once" in found.message
    assert "compute first, wrap last" in found.remedy


def test_computed_buffer_is_found_at_the_line_that_registers_it(findings_of):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 4)
            self.register_buffer("scale", nn.Parameter(torch.ones(8)) * 0.5)

        def forward(self, x):
            return self.head(x * self.scale)

    found = only(findings_of(Scaled(), (X, CLASSES), functional.cross_entropy), "GS207")
    assert found.location.source.startswith('self.register_buffer("scale"')
    assert [position.source for position in found.related] == ["return self.head(x * self.scale)"]


def test_computed_tensor_that_was_given_from_outside_is_found_at_its_use(findings_of):
    model = Keeping(None, lambda kept, x: x * model.scale)
    model.scale = nn.Parameter(torch.ones(8)) * 0.5
    found = only(findings_of(model, (X, CLASSES), functional.cross_entropy), "GS207")
    assert "x * model.scale" in found.location.source


def _transposed(model):
    model.kept = model.head.weight.t()
    return model


class Remembering(nn.Module):
    """Keeps what it computed the last time."""

    def __init__(self):
        super().__init__()
        self.first, self.head, self.last = nn.Linear(8, 8), nn.Linear(8, 4), None

    def forward(self, x):
        self.last = self.first(x)
        return self.head(self.last)


def _remembering():
    model = Remembering()
    model(X)
    return model


NOT_LOST = {
    "result of this forward": Remembering,
    "result of an earlier forward": _remembering,
    "view of a parameter": lambda: _transposed(Keeping(None, lambda kept, x: x @ kept @ kept.t())),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)),
    "weight norm by a hook": lambda: nn.utils.weight_norm(nn.Linear(8, 4)),
    "kept and not used": lambda: Keeping(nn.Parameter(torch.ones(8)) * 2, lambda kept, x: x),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("make", some_on_push(NOT_LOST.values(), 3), ids=list(NOT_LOST))
def test_computed_tensors_of_what_learns_are_not_lost(findings_of, make):
    findings = findings_of(make(), (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert [finding for finding in findings if finding.rule == "GS207"] == []


def test_buffer_that_requires_grad_is_an_error(findings_of):
    model = Keeping(None, lambda kept, x: x * model.scale)
    model.register_buffer("scale", torch.ones(8, requires_grad=True))
    found = only(findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1), "GS207")
    assert found.message == "scale requires grad but is a buffer: parameters() does not include it"


def test_layer_made_in_every_forward_is_an_error_at_its_use(findings_of):
    model = Keeping(None, lambda kept, x: nn.Linear(8, 8)(x))
    (found,) = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert (found.rule, found.severity) == ("GS207", "error")
    assert "nn.Linear(8, 8)(x)" in found.location.source


class Late(nn.Module):
    """Makes its last layer when it sees the first input."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.last = None

    def forward(self, x):
        x = self.first(x)
        if self.last is None:
            self.last = nn.Linear(x.shape[1], 4)
        return self.last(x)


def test_layer_made_in_the_first_forward_is_an_error_with_an_optimizer(findings_of):
    found = only(
        findings_of(Late(), (X, CLASSES), functional.cross_entropy, probe_steps=1), "GS207"
    )
    assert (found.severity, found.parameters) == ("warning", ("last.weight", "last.bias"))
    model = Late()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    findings = findings_of(
        model, (X, CLASSES), functional.cross_entropy, optimizer=optimizer, probe_steps=1
    )
    assert only(findings, "GS207").severity == "error"


def test_hidden_network_in_eval_mode_is_a_note(findings_of):
    model = Keeping([nn.Linear(8, 8).eval()], lambda kept, x: kept[0](x))
    (found,) = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert found.severity == "note"


def test_network_of_a_closure_is_judged_by_its_mode_and_its_registration(findings_of):
    apart = Keeping(closure_of(nn.Linear(8, 8).eval()), lambda kept, x: kept(x))
    (found,) = findings_of(apart, (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert (found.rule, found.severity) == ("GS207", "note")
    layer = nn.Linear(8, 8)
    registered = Keeping(closure_of(layer), lambda kept, x: kept(x))
    registered.layer = layer
    assert findings_of(registered, (X, CLASSES), functional.cross_entropy, probe_steps=1) == ()


@pytest.mark.parametrize("frozen", [True, False])
def test_network_of_a_closure_in_a_run(frozen, tmp_path):
    def make():
        layer = nn.Linear(8, 8).requires_grad_(not frozen)
        return Keeping(closure_of(layer), lambda kept, x: kept(x))

    assert codes_of_a_run(make, tmp_path) == ([] if frozen else ["GS207"])


def test_network_of_a_closure_that_another_optimizer_holds_is_healthy(tmp_path):
    layer = nn.Linear(8, 8)
    kept = closure_of(layer)
    codes = codes_of_a_run(
        lambda: Keeping(kept, lambda kept, x: kept(x)), tmp_path, lambda model: layer.parameters()
    )
    assert codes == []


def test_frozen_layers_in_a_list_are_healthy(findings_of):
    model = Keeping([nn.Linear(8, 8).requires_grad_(False)], lambda kept, x: kept[0](x))
    assert findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1) == ()


def test_list_of_layers_that_are_registered_too_is_healthy(findings_of):
    model = Keeping(None, lambda kept, x: kept[0](x))
    model.layer = nn.Linear(8, 8)
    model.kept = [model.layer, model]  # with a way back to itself
    assert findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1) == ()


def test_list_that_is_not_used_is_healthy(findings_of):
    model = Keeping([nn.Linear(8, 8)], lambda kept, x: x)
    assert findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1) == ()


def test_noise_that_the_forward_makes_is_no_parameter(findings_of):
    def perturbed(kept, x):
        model.noise = torch.zeros_like(x).requires_grad_()
        return x + model.noise

    model = Keeping(None, perturbed)
    assert findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1) == ()


def test_tensor_that_the_optimizer_holds_is_healthy(findings_of):
    model = Keeping(torch.ones(8, requires_grad=True), lambda kept, x: kept * x)
    optimizer = torch.optim.Adam([*model.parameters(), model.kept])
    findings = findings_of(
        model, (X, CLASSES), functional.cross_entropy, optimizer=optimizer, probe_steps=1
    )
    assert [finding for finding in findings if finding.rule == "GS207"] == []


def test_parameters_of_the_loss_module_are_not_the_models(findings_of):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

        def forward(self, output, target):
            return functional.cross_entropy(output / self.temperature, target)

    findings = findings_of(nn.Linear(8, 4), (X, CLASSES), Weighted(), probe_steps=1)
    assert [finding for finding in findings if finding.rule == "GS207"] == []


def test_line_of_the_list_in_a_file(inspect_file, tmp_path):
    report = inspect_file(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = []  # <-
        for _ in range(3):
            self.layers.append(nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)

model = Net()
batch = torch.randn(4, 8)

def loss_fn(output, batch):
    return output.square().mean()
"""
    )
    found = only(report.findings, "GS207")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert [position.line for position in found.related] == [15]
    assert found.parameters == tuple(
        f"layers.{n}.{name}" for n in range(3) for name in ("weight", "bias")
    )


class Positions(nn.Module):
    """Adds a plain tensor, which its constructor makes, or each forward anew."""

    def __init__(self):
        super().__init__()
        self.shift = torch.zeros(8).requires_grad_()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x) + self.shift))


class Perturbed(Positions):
    def forward(self, x):
        self.shift = torch.zeros(8).requires_grad_()
        return super().forward(x)


def codes_of_a_run(make, folder, held=lambda model: ()):
    def loop():
        model = make()
        adam = torch.optim.Adam([*model.parameters(), *held(model)], lr=1e-2)
        for _ in range(12):
            adam.zero_grad()
            functional.cross_entropy(model(X), CLASSES).backward()
            adam.step()

    return [one.rule for one in watching.findings_of(loop, folder) if one.rule == "GS207"]


def test_plain_tensor_of_a_script_is_found(tmp_path):
    assert codes_of_a_run(Positions, tmp_path) == ["GS207"]


class Buffered(Positions):
    """Registers a buffer, which requires grad."""

    def __init__(self):
        super().__init__()
        del self.shift
        self.register_buffer("shift", torch.zeros(8))
        self.shift.requires_grad_()


def test_buffer_of_a_script_is_found(tmp_path):
    assert codes_of_a_run(Buffered, tmp_path) == ["GS207"]


def test_buffer_that_an_optimizer_holds_is_fine(tmp_path):
    assert codes_of_a_run(Buffered, tmp_path, held=lambda model: [model.shift]) == []


class Listed(Positions):
    """Stores its tensors in a list, which the constructor fills."""

    def __init__(self):
        super().__init__()
        del self.shift
        self.shifts = [torch.zeros(8, requires_grad=True)]
        self.shifts.append(torch.zeros(8, requires_grad=True))

    def forward(self, x):
        return self.head(torch.tanh(self.body(x) + self.shifts[0] - self.shifts[1]))


class Keyed(Listed):
    def __init__(self):
        super().__init__()
        self.by_name = {"up": torch.zeros(8, requires_grad=True)}

    def forward(self, x):
        return self.head(torch.tanh(self.body(x) + self.by_name["up"]))


class Refilled(Positions):
    """Puts a new tensor into its list in each forward, to read what a gradient would be."""

    def __init__(self):
        super().__init__()
        self.probed = [torch.zeros(8, requires_grad=True)]

    def forward(self, x):
        self.probed[0] = torch.zeros(8, requires_grad=True)
        return self.head(torch.tanh(self.body(x) + self.probed[0]))


@pytest.mark.parametrize("kind", [Listed, Keyed])
def test_tensors_that_a_constructor_puts_into_a_container_are_found(kind, tmp_path):
    assert codes_of_a_run(kind, tmp_path) == ["GS207"]


def test_tensors_of_a_list_that_an_optimizer_of_a_script_holds_are_healthy(tmp_path):
    assert codes_of_a_run(Listed, tmp_path, lambda model: model.shifts) == []


def test_tensors_that_a_forward_puts_into_a_list_are_healthy(tmp_path):
    assert codes_of_a_run(Refilled, tmp_path) == []


def test_plain_tensor_that_an_optimizer_of_a_script_holds_is_healthy(tmp_path):
    assert codes_of_a_run(Positions, tmp_path, lambda model: [model.shift]) == []


def test_tensor_that_each_forward_of_a_script_makes_is_healthy(tmp_path):
    assert codes_of_a_run(Perturbed, tmp_path) == []
