"""GS204: gradients that are zero for good, and those that only look so."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.rules.context import RuleContext
from gradscope.rules.reach.zero_gradient import ZeroGradient
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.nightly import some_on_push
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def layers(inputs: int, outputs: int, hidden: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class Between(nn.Module):
    """Two parts with an operation of choice between them."""

    def __init__(self, operation):
        super().__init__()
        self.first, self.second, self.operation = layers(8, 8), layers(8, 4), operation

    def forward(self, x):
        return self.second(self.operation(self.first(x)))


def zero_(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def found_in(findings_of, model, **chosen):
    return [
        finding
        for finding in findings_of(model, (X, CLASSES), functional.cross_entropy, **chosen)
        if finding.rule == "GS204"
    ]


BLOCKING = {
    "the derivative of round after first.2 is": torch.round,
    "the derivative of sign": torch.sign,
    "the derivative of floor": torch.floor,
    "clamps every value": lambda h: (h + 5).clamp(0, 1),
    "sigmoid is so saturated": lambda h: torch.sigmoid(1e4 * (h + 1)),
    "mul after first.2 multiplies it by zeros": lambda h: h * torch.zeros(8),
}


@pytest.mark.parametrize(
    ("words", "operation"), some_on_push(BLOCKING.items(), 2), ids=list(BLOCKING)
)
def test_operation_that_hands_on_zeros_is_an_error(findings_of, words, operation):
    torch.manual_seed(0)
    (found,) = found_in(findings_of, Between(operation))
    assert found.severity == "error"
    assert words in found.message
    assert "also after 3 optimizer steps" in found.message
    assert {name.partition(".")[0] for name in found.parameters} <= {"first", "second"}
    assert sum(name.startswith("first.") for name in found.parameters) == 4


def test_dead_layer_is_one_finding_with_the_weights_behind_it(findings_of):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    nn.init.constant_(model[2].bias, -100.0)
    (found,) = found_in(findings_of, model)
    assert set(found.parameters) == {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight"}
    assert "every input of relu after 2 is negative" in found.message


class Stack(nn.Module):
    """Layers of one width, each followed by an activation on one line."""

    def __init__(self, depth, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        self.head, self.activation = nn.Linear(8, 4), activation

    def forward(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return self.head(x)


@pytest.mark.nightly
def test_zeros_that_rounding_makes_of_a_vanished_gradient_are_its_consequence(findings_of):
    torch.manual_seed(0)
    (found,) = findings_of(Stack(80, torch.sigmoid), (X, CLASSES), functional.cross_entropy)
    assert found.rule == "GS102"
    zero = next(one for one in found.consequences if one.rule == "GS204")
    assert {one.rule for one in found.consequences} <= {"GS204", "GS218"}
    assert "is so small that its products underflow to zero" in zero.message


def test_zeros_of_a_tiny_loss_are_not_laid_to_saturation(findings_of):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4))
    (found,) = findings_of(model, (X, CLASSES), lambda y, t: functional.cross_entropy(y, t) * 1e-44)
    assert found.rule == "GS204"
    assert "so small that its products underflow" in found.message
    assert "a small factor on the loss" in found.remedy


def test_a_dead_layer_in_a_stack_is_one_finding(findings_of):
    torch.manual_seed(0)
    stack = Stack(8, torch.relu)
    nn.init.constant_(stack.layers[4].bias, -20.0)
    batch = torch.randn(64, 8), torch.arange(64) % 4
    (found,) = findings_of(stack, batch, functional.cross_entropy)
    assert found.rule == "GS204"
    assert "every input of relu after layers.4 is negative" in found.message
    assert {one.rule for one in found.consequences} == {"GS105", "GS218"}


def test_two_factors_of_zero_point_to_the_line_that_made_one(inspect_file, tmp_path):
    text = """
import torch
from torch import nn

class Update(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.down = nn.Parameter(first(2, 8))
        self.up = nn.Parameter(torch.zeros(8, 2))  # <-

    def forward(self, x):
        return self.frozen(x) + x @ self.down.T @ self.up.T

model = Update(torch.FIRST)
batch = torch.randn(4, 8)

def loss_fn(output, batch):
    return output.square().mean()
"""
    found = only(inspect_file(text.replace("FIRST", "zeros")).findings, "GS204")
    assert found.severity == "error"
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert found.parameters == ("down", "up")
    assert inspect_file(text.replace("FIRST", "randn")).findings == ()


class Adapted(nn.Module):
    """Trains large layers, and beside them a low-rank branch that is few of the parameters."""

    def __init__(self, down, up):
        super().__init__()
        self.body, self.head = layers(8, 8, hidden=64), nn.Linear(8, 4)
        self.down = nn.Parameter(torch.full((1, 8), 0.1) * down)
        self.up = nn.Parameter(torch.full((8, 1), 0.1) * up)

    def forward(self, x):
        return self.head(self.body(x) + x @ self.down.T @ self.up.T)


@pytest.mark.parametrize(("down", "up"), [(0, 0), (1, 0), (0, 1)])
def test_two_factors_of_zero_are_stuck_however_small_they_are(findings_of, down, up):
    levels = [found.severity for found in found_in(findings_of, Adapted(down, up))]
    assert levels == ([] if down or up else ["warning"])


def test_small_factor_that_is_frozen_at_zero_may_be_meant(findings_of):
    model = Adapted(0, 0)
    model.up.requires_grad_(False)
    (found,) = found_in(findings_of, model)
    assert (found.severity, found.parameters) == ("note", ("down",))


class Gated(nn.Module):
    """A residual branch behind a gate that starts at zero."""

    def __init__(self):
        super().__init__()
        self.stem, self.branch, self.head = layers(8, 8), layers(8, 8), nn.Linear(8, 4)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        hidden = self.stem(x)
        return self.head(hidden + self.gate * self.branch(hidden))


class Modulated(nn.Module):
    """A branch whose gate is computed, by a layer that starts at zero."""

    def __init__(self):
        super().__init__()
        self.gate = zero_(nn.Linear(8, 16))
        self.branch, self.head = layers(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        gate, shift = self.gate(functional.silu(x)).chunk(2, dim=-1)
        return self.head(x + gate * self.branch(x) + shift)


def zero_head():
    model = layers(8, 4)
    zero_(model[2])
    return model


@pytest.mark.parametrize("build", [Gated, Modulated, zero_head])
@pytest.mark.parametrize("probe_steps", [0, 3])
def test_zero_initialisation_that_opens_is_healthy(findings_of, build, probe_steps):
    assert found_in(findings_of, build(), probe_steps=probe_steps) == []


def test_gate_that_is_frozen_at_zero_is_found(findings_of):
    model = Gated()
    model.gate.requires_grad_(False)
    (found,) = found_in(findings_of, model)
    assert "gate, frozen at zero" in found.message
    assert {name.partition(".")[0] for name in found.parameters} == {"branch"}


class Quantised(nn.Module):
    """A layer whose weight is quantised before it is used."""

    def __init__(self, quantise):
        super().__init__()
        self.weight, self.quantise = nn.Parameter(torch.randn(8, 8) * 0.3), quantise
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(functional.linear(x, self.quantise(self.weight)).relu())


@pytest.mark.parametrize("quantise", [torch.sign, torch.round, lambda w: (-w.square()).relu()])
def test_weights_that_are_rounded_themselves_are_found(findings_of, quantise):
    torch.manual_seed(0)
    (found,) = found_in(findings_of, Quantised(quantise))
    assert found.severity == "error"
    assert "weight" in found.parameters


@pytest.mark.parametrize("quantise", [torch.relu, lambda w: w + (w.sign() - w).detach()])
def test_weights_that_pass_a_gradient_are_healthy(findings_of, quantise):
    torch.manual_seed(0)
    assert found_in(findings_of, Quantised(quantise)) == []


def test_straight_through_estimator_is_healthy(findings_of):
    torch.manual_seed(0)
    assert found_in(findings_of, Between(lambda h: h + (h.round() - h).detach())) == []


class Experts(nn.Module):
    """Four experts of which the router chooses two for every row, the same two."""

    def __init__(self, *, dense: bool):
        super().__init__()
        self.router, self.experts = nn.Linear(8, 4), nn.ModuleList(layers(8, 4) for _ in range(4))
        nn.init.zeros_(self.router.weight)
        with torch.no_grad():
            self.router.bias.copy_(torch.tensor([5.0, 4.0, -5.0, -5.0]))
        self.dense = dense

    def forward(self, x):
        values, index = self.router(x).softmax(dim=-1).topk(2, dim=-1)
        if self.dense:
            weights = torch.zeros(len(x), 4).scatter(1, index, values)
            return sum(weights[:, e, None] * expert(x) for e, expert in enumerate(self.experts))
        output = x.new_zeros(len(x), 4)
        for e, expert in enumerate(self.experts):
            row, position = (index == e).nonzero(as_tuple=True)
            output = output.index_add(0, row, expert(x[row]) * values[row, position, None])
        return output


def test_idle_experts_are_a_note_at_most(findings_of):
    assert found_in(findings_of, Experts(dense=False)) == []
    (found,) = found_in(findings_of, Experts(dense=True))
    assert found.severity == "note"


def test_bias_before_normalisation_and_input_of_zeros_are_healthy(findings_of):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unfed = nn.Linear(8, 16), nn.Linear(8, 16)
            self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 4)

        def forward(self, x):
            return self.head(self.norm(self.used(x) + self.unfed(torch.zeros_like(x))))

    assert found_in(findings_of, Padded()) == []


def test_reverse_direction_that_saw_one_step_is_a_warning(findings_of):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(8, 16, bidirectional=True, batch_first=True)
            self.head = nn.Linear(32, 4)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    findings = findings_of(Last(), (torch.randn(16, 5, 8), CLASSES), functional.cross_entropy)
    found = only(findings, "GS204")
    assert (found.severity, found.parameters) == ("warning", ("lstm.weight_hh_l0_reverse",))


def test_margin_that_is_kept_is_a_note(findings_of):
    def hinge(output, target):
        return functional.relu(output.abs() - 100).mean()

    found = only(findings_of(layers(8, 4), (X, CLASSES), hinge), "GS204")
    assert (found.severity, len(found.parameters)) == ("note", 4)


def hinged(tmp_path, margin):
    """Train with a hinge, and return the levels of what is said of zero gradients."""
    torch.manual_seed(0)
    model = layers(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def train():
        for _ in range(12):
            optimizer.zero_grad()
            loss = functional.relu(model(X).square().sum(1) + margin).mean()
            loss.backward()
            optimizer.step()

    return [one.severity for one in watching.findings_of(train, tmp_path) if one.rule == "GS204"]


def test_a_hinge_that_is_zero_in_every_step_of_a_run_is_a_warning(tmp_path):
    assert hinged(tmp_path, -100) == ["warning"]


def test_a_hinge_that_training_has_satisfied_is_at_most_a_note(tmp_path):
    assert set(hinged(tmp_path, -0.02)) <= {"note"}


@pytest.fixture(scope="module")
def half_stuck():
    """The recording of a model of which `round` stops the first part."""
    torch.manual_seed(0)
    model = Between(torch.round)
    target = target_from_objects(
        model, (X, CLASSES), functional.cross_entropy, optimizer=None, grad_output=None
    )
    return record(target, trial=Trial(probe_steps=1), eager=False, command="inspect")


def with_share(recording, share):
    """Give what is stuck a share of the trainable elements."""
    stuck = {s.parameter for s in recording.parameter_stats if s.reach == "zero"}
    sizes = {True: round(10_000 * share), False: round(10_000 * (1 - share))}
    counts = {
        position: len(stuck) if position else len(recording.parameters) - len(stuck)
        for position in sizes
    }
    parameters = []
    for parameter in recording.parameters:
        inside = parameter.index in stuck
        first = not any((p.index in stuck) == inside for p in parameters)
        numel = sizes[inside] - (counts[inside] - 1) if first else 1
        parameters.append(dataclasses.replace(parameter, numel=numel))
    return dataclasses.replace(recording, parameters=tuple(parameters))


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (0.0499, "note"),
        (0.05, "warning"),
        (0.25, "warning"),
        (0.2501, "error"),
    ],
)
def test_severity_goes_by_the_share_that_is_stuck(half_stuck, share, severity):
    (found,) = ZeroGradient().check(RuleContext(with_share(half_stuck, share)))
    assert dict(found.evidence)["share_of_trainable_elements"] == pytest.approx(share)
    assert found.severity == severity


def test_without_probing_steps_it_is_a_warning_at_most(half_stuck):
    recording = dataclasses.replace(
        half_stuck, steps=tuple(step for step in half_stuck.steps if step.kind == "step")
    )
    (found,) = ZeroGradient().check(RuleContext(recording))
    assert found.severity == "warning"


def test_missing_and_broken_gradients_are_not_zero(half_stuck):
    stats = tuple(
        dataclasses.replace(stat, reach="gradient" if stat.step else stat.reach)
        for stat in half_stuck.parameter_stats
    )
    assert (
        list(
            ZeroGradient().check(
                RuleContext(dataclasses.replace(half_stuck, parameter_stats=stats))
            )
        )
        == []
    )
    stats = tuple(
        dataclasses.replace(stat, reach="none", gradient=None)
        for stat in half_stuck.parameter_stats
    )
    assert (
        list(
            ZeroGradient().check(
                RuleContext(dataclasses.replace(half_stuck, parameter_stats=stats))
            )
        )
        == []
    )


DRAWS = {
    "torch.randn_like": lambda h: torch.normal(h, torch.ones_like(h)),
    "gumbel_softmax": lambda h: torch.bernoulli(torch.sigmoid(h)),
    "log-probability": lambda h: torch.poisson(functional.softplus(h)),
    "x + (sgn(x) - x).detach()": torch.sgn,
    "x + (ceil(x) - x).detach()": torch.ceil,
}


@pytest.mark.parametrize(
    ("words", "operation"), some_on_push(DRAWS.items(), {0, 3}), ids=list(DRAWS)
)
def test_remedy_fits_the_draw_or_the_rounding(findings_of, words, operation):
    torch.manual_seed(0)
    (found,) = found_in(findings_of, Between(operation))
    assert words in found.remedy


PINN = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1, 16), nn.ACT(), nn.Linear(16, 16), nn.ACT(), nn.Linear(16, 1))
batch = torch.linspace(0, 3, 40).unsqueeze(1)

def compute_loss(model, x):
    x = x.clone().requires_grad_()
    slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]  # <-
    return ((second + torch.sin(x)) ** 2).mean()
"""


@pytest.mark.parametrize("activation", some_on_push(["ReLU", "LeakyReLU", "Hardtanh"], {0, 1}))
def test_second_derivative_of_straight_pieces_is_one_finding(inspect_file, tmp_path, activation):
    (found,) = inspect_file(PINN.replace("ACT", activation)).findings
    assert (found.rule, found.severity) == ("GS204", "error")
    assert f"that of {activation} is zero everywhere" in found.message
    assert "tanh, SiLU or softplus" in found.remedy
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert {"4.weight", "4.bias"} <= set(found.parameters)
    assert {one.rule for one in found.consequences} == {"GS118", "GS203"}


@pytest.mark.parametrize("activation", some_on_push(["Tanh", "SiLU", "Softplus"], {0, 1}))
def test_second_derivative_of_what_is_smooth_is_healthy(inspect_file, activation):
    report = inspect_file(PINN.replace("ACT", activation))
    assert [found.severity for found in report.findings] in ([], ["note"])


def test_layer_filled_with_zeros_is_found_at_the_line_that_fills_it(inspect_file, tmp_path):
    report = inspect_file(
        """
import torch
from torch import nn

class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(8, 4)
        self.up = nn.Linear(4, 8)  # made
        for layer in (self.down, self.up):
            nn.init.zeros_(layer.weight)  # <-
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))

model = nn.Sequential(nn.Linear(8, 8), Adapter(), nn.Linear(8, 2))
batch = torch.randn(16, 8)

def loss_fn(output, batch):
    return output.square().mean()
"""
    )
    found = only(report.findings, "GS204")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert found.related[0].line in marked_lines(tmp_path / "model.py", "# made")


POLICY = """
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
actor, critic = nn.Linear(3, 4), nn.Linear(3, 1)
model = nn.ModuleDict({"actor": actor, "critic": critic})
batch = torch.randn(16, 3)
actions = torch.randint(0, 4, (16,))
advantage = torch.randn(16)

def compute_loss(model, x):
    policy = Categorical(logits=actor(x))
    new = policy.log_prob(actions)
    old = OLD  # <-
    return ((new - old).exp() * advantage).mean() + critic(x).square().mean()
"""


FUNCTION = """def log_prob(net, x):
    return net(x).log_softmax(-1).gather(1, actions.unsqueeze(1)).squeeze(1)

def compute_loss"""


def test_two_equal_terms_of_opposite_sign_are_named_at_the_later_line(inspect_file, tmp_path):
    report = inspect_file(POLICY.replace("OLD", "policy.log_prob(actions)"))
    found = only(report.findings, "GS204")
    assert set(found.parameters) == {"actor.weight", "actor.bias"}
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert [one.line for one in found.related] == [found.location.line - 1]
    assert f"through this line and line {found.location.line - 1} cancel" in found.message


def test_two_equal_terms_of_one_function_are_named_where_they_meet(inspect_file, tmp_path):
    text = POLICY.replace("def compute_loss", FUNCTION).replace("  # <-", "")
    text = text.replace("policy.log_prob(actions)", "log_prob(actor, x)")
    text = text.replace("OLD", "log_prob(actor, x)\n    difference = new - old  # <-")
    found = only(inspect_file(text.replace("((new - old)", "((difference)")).findings, "GS204")
    assert "actor.weight" in found.parameters
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert not found.related


def test_two_terms_of_one_function_on_other_data_are_fine(inspect_file):
    """The parts of a bias cancel in the difference of two outputs, for good reason."""
    text = POLICY.replace("policy.log_prob(actions)", "actor(x)[:, 0]")
    text = text.replace("OLD", "actor(x.flip(0))[:, 0]")
    assert not [one for one in inspect_file(text).findings if one.rule == "GS204"]


@pytest.mark.parametrize("old", ["policy.log_prob(actions).detach()", "torch.zeros(16)"])
def test_a_term_without_gradient_cancels_nothing(inspect_file, old):
    assert not [f for f in inspect_file(POLICY.replace("OLD", old)).findings if f.rule == "GS204"]


def test_two_terms_that_are_dead_by_themselves_do_not_cancel(inspect_file):
    text = POLICY.replace("OLD", "0.0").replace("policy.log_prob(actions)", "SUM")
    text = text.replace("new = SUM", "new = (h := actor(x) - 100).relu().sum() + h.relu().sum()")
    found = only(inspect_file(text).findings, "GS204")
    assert "every input of relu is negative" in found.message


FACTORS = """
import torch
from torch import nn

class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.gate, self.colour = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(8, 6)
        nn.init.constant_(self.gate.bias, BIAS)  # bias

    def forward(self, x):
        h = torch.tanh(self.body(x))
        gate = torch.relu(self.gate(h))  # relu
        weight = FACTOR
        return (weight * torch.sigmoid(self.colour(h))).sum(1, keepdim=True)  # product

torch.manual_seed(0)
model = Gated()
batch = torch.randn(32, 4)

def loss_fn(output, batch):
    return (output - 1).square().mean()
"""


@pytest.mark.parametrize("factor", ["gate", "1 - torch.exp(-gate * (1 + x[:, :1].abs()))"])
def test_a_product_with_the_zeros_of_a_dead_relu_is_told_at_the_relu(
    inspect_file, tmp_path, factor
):
    report = inspect_file(FACTORS.replace("BIAS", "-20.0").replace("FACTOR", factor))
    found = only(report.findings, "GS204")
    assert len(found.parameters) == 6
    assert "every input of relu after gate is negative" in found.message
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# relu")
    assert {one.line for one in found.related} == marked_lines(tmp_path / "model.py", "# bias")


def test_a_product_with_zeros_of_a_mask_is_told_at_the_product(inspect_file, tmp_path):
    report = inspect_file(FACTORS.replace("BIAS", "0.1").replace("FACTOR", "gate * 0"))
    lines = {found.location.line for found in report.findings if found.rule == "GS204"}
    assert lines
    assert lines.isdisjoint(marked_lines(tmp_path / "model.py", "# relu"))


@pytest.mark.parametrize("bias", ["0.1", "-0.3"])
def test_a_relu_that_lets_some_through_is_not_dead(inspect_file, bias):
    text = FACTORS.replace("BIAS", bias).replace("FACTOR", "1 - torch.exp(-gate)")
    assert not [f for f in inspect_file(text).findings if f.rule == "GS204"]


def test_two_uses_that_get_no_gradient_do_not_cancel(inspect_file):
    text = POLICY.replace("OLD", "0.0").replace("policy.log_prob(actions)", "SUM")
    product = "((h := actor(x)) @ eye * 0).sum() + (h @ eye * 0).sum()"
    text = text.replace("new = SUM", f"eye = torch.eye(4); new = {product}")
    found = [f for f in inspect_file(text).findings if f.rule == "GS204"]
    assert found
    assert not any("cancel" in one.message for one in found)
