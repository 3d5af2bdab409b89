"""GS201: which cuts are mistakes, and which are meant."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def layers(inputs: int, outputs: int, hidden: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class Coder(nn.Module):
    """An encoder whose code is cut off in a way of choice, and a decoder or a head."""

    def __init__(self, cut, *, head: bool = False):
        super().__init__()
        self.encoder = layers(8, 6)
        self.decoder = nn.Linear(6, 4) if head else layers(6, 4)
        self.cut = cut

    def forward(self, x):
        return self.decoder(self.cut(self.encoder, x))


def detached(encoder, x):
    return encoder(x).detach()


def data(encoder, x):
    return encoder(x).data


def listed(encoder, x):
    return torch.tensor(encoder(x).tolist())


def numpy(encoder, x):
    return torch.from_numpy(encoder(x).detach().numpy().copy())


def without_grad(encoder, x):
    with torch.no_grad():
        return encoder(x)


def wrapped_anew(encoder, x):
    return torch.tensor(encoder(x))


def scaled_in_inference_mode(encoder, x):
    code = encoder(x)
    with torch.inference_mode():
        scaled = 2 * code
    return scaled.clone()


def adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize(
    "cut",
    some_on_push([detached, data, listed, numpy, wrapped_anew, scaled_in_inference_mode], {0, 3}),
    ids=lambda cut: cut.__name__,
)
def test_encoder_cut_off_in_the_forward_is_an_error(findings_of, cut):
    model = Coder(cut)
    (found,) = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert (found.rule, found.severity) == ("GS201", "error")
    assert set(found.parameters) == {f"encoder.{n}.{p}" for n in (0, 2) for p in ("weight", "bias")}
    assert found.location.source in inspect.getsource(cut)
    assert found.location.function == cut.__qualname__
    assert "encoder (4 parameters)" in found.message
    assert dict(found.evidence)["parameters_cut"] == 4


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize(
    ("cut", "head", "held", "severity"),
    some_on_push(
        [
            (wrapped_anew, True, None, "error"),
            (wrapped_anew, True, "all", "error"),
            (wrapped_anew, True, "decoder", "note"),
            (detached, False, None, "error"),
            (detached, False, "all", "error"),
            (detached, False, "decoder", "note"),
            (detached, True, None, "warning"),
            (detached, True, "all", "warning"),
            (detached, True, "decoder", "note"),
            (without_grad, False, None, "warning"),
            (without_grad, False, "all", "error"),
            (without_grad, False, "decoder", "note"),
            (without_grad, True, "all", "warning"),
            (without_grad, True, "decoder", "note"),
        ],
        {0, 2, 6},
    ),
)
def test_severity_goes_by_what_learns_and_what_the_optimizer_holds(
    findings_of, cut, head, held, severity
):
    model = Coder(cut, head=head)
    parts = {"all": model, "decoder": model.decoder}
    optimizer = adam(parts[held].parameters()) if held else None
    (found,) = findings_of(
        model, (X, CLASSES), functional.cross_entropy, optimizer=optimizer, probe_steps=0
    )
    assert (found.rule, found.severity) == ("GS201", severity)


def test_encoder_in_eval_mode_is_meant_to_be_frozen(findings_of):
    model = Coder(detached)
    model.encoder.eval()
    (found,) = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert found.severity == "note"


def test_frozen_encoder_is_no_finding(findings_of):
    model = Coder(without_grad)
    model.encoder.requires_grad_(False)
    assert findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=0) == ()


def test_backbone_of_many_parameters_under_no_grad_is_one_finding_at_its_call(findings_of):
    model = Coder(without_grad)
    model.encoder = nn.Sequential(*(Residual() for _ in range(40)), nn.Linear(8, 6))
    findings = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=0)
    # Forty residual layers without a scale make the first loss large.
    (found,) = [one for one in findings if one.rule != "GS706"]
    assert found.location.source == "return encoder(x)"
    assert len(found.parameters) == 82
    assert found.modules[0] == "encoder.0.layer"


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return x + functional.gelu(self.layer(x))


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    @torch.no_grad()
    def forward(self, x):
        x = functional.gelu(self.first(x))
        return self.second(x)


class WithDecorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.decorated, self.rest, self.head = Decorated(), nn.Linear(8, 8), layers(8, 4)

    def forward(self, x):
        return self.head(self.rest(x) + self.decorated(x))


def test_forward_decorated_with_no_grad_is_one_finding(findings_of):
    model = WithDecorated()
    (found,) = findings_of(
        model,
        (X, CLASSES),
        functional.cross_entropy,
        optimizer=adam(model.parameters()),
        probe_steps=0,
    )
    assert (found.rule, found.severity) == ("GS201", "error")
    assert found.location.source == "x = functional.gelu(self.first(x))"
    assert len(found.parameters) == 4


def test_residual_branch_detached_is_no_straight_through_estimator(findings_of):
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.branch, self.head = layers(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            hidden = self.stem(x)
            return self.head(hidden + self.branch(hidden).detach())

    (found,) = findings_of(Branch(), (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert (found.severity, found.parameters) == ("error", ("branch.weight", "branch.bias"))


def test_loss_made_anew_of_its_number_is_an_error(findings_of):
    def loss(output, target):
        return torch.tensor(functional.cross_entropy(output, target).item(), requires_grad=True)

    (found,) = findings_of(layers(8, 4), (X, CLASSES), loss, probe_steps=1)
    assert found.severity == "error"
    messages = [found.message, *(consequence.message for consequence in found.consequences)]
    assert any(message.startswith("nothing learns: item() cuts") for message in messages)


def test_loss_term_detached_is_an_error(findings_of):
    model = nn.ModuleDict({"main": layers(8, 4), "other": layers(8, 4)})

    def loss(model, batch):
        x, target = batch
        other = model["other"](x).square().mean()
        return functional.cross_entropy(model["main"](x), target) + other.detach()

    (found,) = findings_of(model, (X, CLASSES), loss, probe_steps=0)
    assert (found.rule, found.severity) == ("GS201", "error")
    assert found.modules == ("other.0", "other.2")


# What follows looks like a cut and is meant.


class Bootstrap(nn.Module):
    """A network that predicts what a copy of it says: the copy learns by moving average."""

    def __init__(self, target):
        super().__init__()
        self.online, self.predictor, self.target = layers(8, 8), layers(8, 8), layers(8, 8)
        self.ask = target

    def forward(self, x):
        prediction = functional.normalize(self.predictor(self.online(x)), dim=1)
        target = functional.normalize(self.ask(self.target, x), dim=1)
        return -(prediction * target).sum(dim=1).mean()


@pytest.mark.parametrize("ask", [detached, without_grad])
def test_target_of_a_loss_is_a_note(findings_of, ask):
    (found,) = findings_of(Bootstrap(ask), X, probe_steps=0)
    assert (found.rule, found.severity) == ("GS201", "note")
    assert "target of the loss" in found.message


def test_momentum_encoder_whose_keys_are_logits_is_a_note(findings_of):
    class Contrast(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = layers(8, 8), layers(8, 8)
            self.register_buffer("queue", torch.randn(8, 20))

        def forward(self, x):
            query = functional.normalize(self.query(x), dim=1)
            with torch.no_grad():
                key = functional.normalize(self.key(x), dim=1)
            return torch.cat([(query * key).sum(dim=1, keepdim=True), query @ self.queue], dim=1)

    (found,) = findings_of(
        Contrast(), (X, torch.zeros_like(CLASSES)), functional.cross_entropy, probe_steps=0
    )
    assert (found.severity, "copy of a module that learns" in found.message) == ("note", True)


class Attention(nn.Module):
    """Three layers of one size, none of which is a copy of another."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 4)

    def run(self, name, x):
        with torch.set_grad_enabled(name not in self.names):
            return getattr(self, name)(x)

    def forward(self, x):
        scores = self.run("query", x) @ self.run("key", x).T
        return self.head(scores.softmax(1) @ self.run("value", x))


@pytest.mark.parametrize(
    ("names", "severity"), [(("query", "key"), "error"), (("query",), "warning")]
)
def test_layers_of_an_attention_are_no_copies_of_each_other(findings_of, names, severity):
    (found,) = findings_of(Attention(names), (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert (found.rule, found.severity) == ("GS201", severity)


def test_teacher_of_another_architecture_is_a_note(findings_of):
    class Distilled(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = layers(8, 4, hidden=64), layers(8, 4)

        def forward(self, x):
            return self.student(x), self.teacher(x).detach()

    def loss(output):
        student, teacher = output
        return functional.kl_div(
            student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean"
        )

    (found,) = findings_of(Distilled(), X, loss, probe_steps=0)
    assert found.severity == "note"


class Quantizer(nn.Module):
    """A codebook with a straight-through estimator."""

    def __init__(self, *, learns: bool):
        super().__init__()
        self.encoder, self.codes, self.decoder = layers(8, 6), nn.Embedding(16, 6), layers(6, 8)
        self.learns = learns

    def forward(self, x):
        code = self.encoder(x)
        with torch.no_grad():
            index = torch.cdist(code, self.codes.weight).argmin(dim=-1)
        nearest = self.codes(index)
        loss = functional.mse_loss(code, nearest.detach())
        if self.learns:
            loss = loss + functional.mse_loss(nearest, code.detach())
        return self.decoder(code + (nearest - code).detach()), loss


def test_codebook_that_learns_is_no_finding_and_one_by_moving_average_a_note(findings_of):
    def loss(output, target):
        return functional.mse_loss(output[0], target) + output[1]

    assert findings_of(Quantizer(learns=True), (X, X), loss, probe_steps=0) == ()
    (found,) = findings_of(Quantizer(learns=False), (X, X), loss, probe_steps=0)
    assert (found.severity, found.parameters) == ("note", ("codes.weight",))


def test_discriminator_step_is_not_the_generators_mistake(findings_of):
    model = nn.ModuleDict({"generator": layers(8, 8), "discriminator": layers(8, 1)})

    def loss(model, batch):
        fake = model["generator"](batch[0]).detach()
        return functional.softplus(model["discriminator"](fake)).mean()

    (found,) = findings_of(model, (X, X), loss, probe_steps=0)
    assert found.severity == "warning"
    optimizer = adam(model["discriminator"].parameters())
    (found,) = findings_of(model, (X, X), loss, optimizer=optimizer, probe_steps=0)
    assert found.severity == "note"


def test_policy_gradient_with_a_baseline_is_healthy(findings_of):
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.policy, self.value = layers(8, 16), nn.Linear(16, 4), nn.Linear(16, 1)

        def forward(self, x):
            hidden = self.body(x)
            return torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden)

    def loss(output):
        distribution, value = output
        value, returns = value.squeeze(-1), X.sum(dim=1)
        action = distribution.sample()
        advantage = returns - value.detach()
        return -(distribution.log_prob(action) * advantage).mean() + functional.mse_loss(
            value, returns
        )

    assert findings_of(ActorCritic(), X, loss, probe_steps=0) == ()


@pytest.mark.parametrize("look", ["argmax", "mean"])
def test_head_that_is_only_looked_at_is_unused_and_not_cut(findings_of, look):
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.aside = layers(8, 16), nn.Linear(16, 4), nn.Linear(16, 4)
            self.last = 0.0

        def forward(self, x):
            hidden = self.body(x)
            aside = self.aside(hidden)
            self.last = (aside.argmax(-1).float() if look == "argmax" else aside).mean().item()
            return self.head(hidden)

    (found,) = findings_of(Watched(), (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert (found.rule, found.severity) == ("GS203", "warning")


def test_number_that_scales_the_output_is_a_cut(findings_of):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.scale = layers(8, 4), nn.Linear(8, 1)

        def forward(self, x):
            return self.head(x) * self.scale(x).mean().item()

    (found,) = findings_of(Scaled(), (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert (found.rule, found.severity) == ("GS201", "error")
    (found,) = findings_of(Scaled(), (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert (found.rule, found.severity) == ("GS201", "warning")  # the loss was not asked


def test_line_and_definitions_in_a_file(inspect_file, tmp_path):
    report = inspect_file(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

    def forward(self, x):
        hidden = self.encoder(x).relu()
        hidden = hidden.detach()  # <-
        return self.decoder(hidden)

model = Net()
batch = torch.randn(4, 8)

def loss_fn(output, batch):
    return output.square().mean()
"""
    )
    found = only(report.findings, "GS201")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert [(position.line, position.source) for position in found.related] == [
        (12, "hidden = self.encoder(x).relu()"),
        (8, "self.encoder = nn.Linear(8, 8)"),
    ]


def wrapped(encoder, x):
    return nn.Parameter(encoder(x))


def wrapped_copy(encoder, x):
    return nn.Parameter(encoder(x).clone())


def wrapped_data(encoder, x):
    return nn.Parameter(encoder(x).data)


def made_again(encoder, x):
    return torch.tensor(encoder(x))


@pytest.mark.filterwarnings("ignore:To copy construct:UserWarning")
@pytest.mark.parametrize(
    "cut", some_on_push([wrapped, wrapped_copy, wrapped_data, made_again], {0, 2})
)
def test_new_leaf_of_a_result_is_one_cut(findings_of, cut):
    (found,) = findings_of(Coder(cut), (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert (found.rule, found.severity) == ("GS201", "error")
    assert found.location.function == cut.__qualname__
    assert found.count == 4


def test_class_of_parameters_is_left_as_it_was(findings_of):
    before = vars(nn.Parameter)["__new__"]
    findings_of(Coder(wrapped), (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert vars(nn.Parameter)["__new__"] is before


def by_numpy(encoder, x):
    return torch.as_tensor(encoder(x).detach().numpy())


def by_list(encoder, x):
    return torch.tensor(encoder(x).tolist())


@pytest.mark.parametrize(
    ("cut", "remedy"),
    some_on_push(
        [
            (wrapped, "makes a new leaf"),
            (by_numpy, "compute with torch"),
            (by_list, "torch.stack"),
            (detached, "only for the copy"),
        ],
        {0, 2},
    ),
)
def test_remedy_fits_the_cut(findings_of, cut, remedy):
    (found,) = findings_of(Coder(cut), (X, CLASSES), functional.cross_entropy, probe_steps=1)
    assert remedy in found.remedy


SOLVER = """
import torch
from torch import nn

class Solved(nn.Module):
    def __init__(self):
        super().__init__()
        self.inject, self.cell, self.out = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        WHERE
        with torch.no_grad():
            state = torch.zeros(len(x), 6)
            for _ in range(5):
                state = torch.tanh(self.cell(state) + given)
        return self.out(state)

model = Solved()
batch = torch.randn(8, 4)

def loss_fn(output, batch):
    return output.square().mean()
"""


@pytest.mark.parametrize(
    ("where", "severity"),
    [
        ("given = self.inject(x)", "error"),
        ("given = torch.zeros(len(x), 6) if x is None else x @ torch.ones(4, 6)", "warning"),
    ],
)
def test_a_solver_without_gradients_is_no_frozen_backbone_if_its_input_has_some(
    inspect_file, where, severity
):
    report = inspect_file(SOLVER.replace("WHERE", where))
    found = only(report.findings, "GS201")
    assert found.severity == severity
    assert ("what they get was computed with gradients" in found.message) == (severity == "error")


class Generated(nn.Module):
    """A layer whose weight another module computes, and `write` puts into it."""

    def __init__(self, write):
        super().__init__()
        self.code, self.make = nn.Parameter(torch.randn(4)), nn.Linear(4, 8 * 8)
        self.layer, self.head, self.write = nn.Linear(8, 8), nn.Linear(8, 4), write

    def forward(self, x):
        self.write(self.layer.weight, self.make(self.code).view(8, 8))
        return self.head(self.layer(x).relu())


def assign(weight, value):
    weight.data = value


def assign_data(weight, value):
    weight.data = value.data


@torch.no_grad()
def copy_into(weight, value):
    weight.copy_(value)


@pytest.mark.parametrize("write", [assign, assign_data, copy_into])
def test_weights_that_another_module_writes_are_a_cut(findings_of, write):
    batch = torch.randn(16, 8), torch.arange(16) % 4
    finding = only(findings_of(Generated(write), batch, functional.cross_entropy), "GS201")
    lines, first = inspect.getsourcelines(write)
    assert finding.severity == "error"
    assert finding.location.line == first + len(lines) - 1
    assert set(finding.parameters) == {"code", "make.weight", "make.bias"}
    assert "functional_call" in finding.remedy


class Averaged(nn.Module):
    """A network beside its moving average, which is computed with the graph of the weights."""

    def __init__(self):
        super().__init__()
        self.online, self.average = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        for weight, mean in zip(self.online.parameters(), self.average.parameters(), strict=True):
            mean.data = 0.9 * mean.data + 0.1 * weight
        return self.online(x) + 0.1 * self.average(x)


def test_weights_that_learn_and_are_written_elsewhere_too_are_healthy(findings_of):
    batch = torch.randn(16, 8), torch.arange(16) % 4
    found = findings_of(Averaged(), batch, functional.cross_entropy)
    assert [one.rule for one in found if one.severity != "note"] == []


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = layers(8, 8), nn.Linear(8, 4)

    def probabilities(self, x):
        return self.head(self.body(x)).softmax(1)


def test_of_several_blocks_without_gradients_the_last_is_shown(tmp_path):
    torch.manual_seed(0)
    policy, temperature = Policy(), nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([*policy.parameters(), temperature], lr=0.1)
    value = torch.randn(16, 4)

    def act():
        with torch.no_grad():
            return policy.probabilities(X).multinomial(1)

    def loss():
        with torch.no_grad():  # of the loss
            chances = policy.probabilities(X)
        entropy = -(chances * chances.log()).sum(1)
        return (-(chances * value).sum(1) - temperature.exp() * entropy).mean()

    def train():
        for _ in range(6):
            act()
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

    told = [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS201"]
    shown = [position.source for one in told for position in one.related]
    assert "with torch.no_grad():  # of the loss" in shown
    assert "with torch.no_grad():" not in shown
