"""GS704: terms that are constants by mistake, and constants that are meant."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules import watching

X = torch.randn(24, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randn(24, 1, generator=torch.Generator().manual_seed(2))


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, outputs))


def told(findings):
    return [finding for finding in findings if finding.rule == "GS704"]


def slope_without_history(model, batch):
    x = batch[0].clone().requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
    return functional.mse_loss(output, batch[1]) + 10 * slope.norm(dim=1).mean()


def detached(model, batch):
    output = model(batch[0])
    smooth = (output[1:] - output[:-1]).abs().mean().detach()
    return functional.mse_loss(output, batch[1]) + 0.1 * smooth


def under_no_grad(model, batch):
    output = model(batch[0])
    with torch.no_grad():
        size = sum(p.pow(2).sum() for p in model.parameters())
    return functional.mse_loss(output, batch[1]) + 1e-3 * size


def a_number(model, batch):
    output = model(batch[0])
    smooth = (output[1:] - output[:-1]).abs().mean()
    return functional.mse_loss(output, batch[1]) + 0.25 * smooth.item()


def a_sum_of_numbers(model, batch):
    output, total = model(batch[0]), 0.0
    for one in output.split(6):
        total += one.abs().mean().item()
    return functional.mse_loss(output, batch[1]) + total


def stacked(model, batch):
    output = model(batch[0])
    terms = [functional.mse_loss(output, batch[1]), output.detach().pow(2).mean()]
    return torch.stack(terms).sum()


def similarity(one, other):
    one, other = one.detach().numpy(), other.numpy()
    return torch.tensor((one * other).mean() / (one.std() * other.std()))


def through_numpy(model, batch):
    output = model(batch[0])
    return functional.mse_loss(output, batch[1]) + 0.1 * (1 - similarity(output, batch[1]))


def a_number_of_numpy(model, batch):
    output = model(batch[0])
    smooth = np.abs(np.diff(output.detach().numpy(), axis=0)).mean()
    return functional.mse_loss(output, batch[1]) + 0.25 * smooth


SICK = [
    slope_without_history,
    detached,
    under_no_grad,
    a_number,
    a_sum_of_numbers,
    stacked,
    through_numpy,
    a_number_of_numpy,
]


@pytest.mark.parametrize("loss", some_on_push(SICK, 3), ids=[loss.__name__ for loss in SICK])
def test_a_term_that_is_a_constant_is_told(findings_of, loss):
    (found,) = told(findings_of(network(), (X, Y), loss))
    assert found.severity == "error"
    assert dict(found.evidence)["parameters_behind"] > 0


def slope_with_history(model, batch):
    x = batch[0].clone().requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return functional.mse_loss(output, batch[1]) + 10 * slope.norm(dim=1).mean()


def value_of_another_loss(model, batch):
    output = model(batch[0])
    surrogate = functional.mse_loss(output, batch[1])
    accuracy = (output.sign() == batch[1].sign()).float().mean()
    return surrogate + (accuracy - surrogate).detach()


def baseline_of_itself(model, batch):
    loss = functional.mse_loss(model(batch[0]), batch[1])
    return loss - loss.item()


def flooding(model, batch):
    loss = functional.mse_loss(model(batch[0]), batch[1])
    return (loss - 0.1).abs() + 0.1


def weight_by_the_other_term(model, batch):
    output = model(batch[0])
    first, second = functional.mse_loss(output, batch[1]), output.abs().mean()
    return first + second * (first / second).detach()


def self_distillation(model, batch):
    goal = model(batch[0]).detach().sigmoid()
    output = model(batch[0] + 0.1).sigmoid()
    entropy = -(goal * goal.log() + (1 - goal) * (1 - goal).log()).mean()
    cross = -(goal * output.log() + (1 - goal) * (1 - output).log()).mean()
    return cross - entropy


def multiplier(model, batch):
    output = model(batch[0])
    cost = output.pow(2).mean()
    return functional.mse_loss(output, batch[1]) + 0.3 * cost - 0.3 * 0.5


def regression_to_a_detached_target(model, batch):
    output = model(batch[0])
    return (output - output.detach().roll(1, 0)).pow(2).mean()


def scores_less_their_mean(model, batch):
    output = model(batch[0])
    return functional.mse_loss(output - output.mean().detach(), batch[1])


def weight_of_numpy(model, batch):
    """A factor has no gradient on purpose."""
    output = model(batch[0])
    spread = torch.tensor(output.detach().numpy().std())
    return functional.mse_loss(output, batch[1]) + output.abs().mean() / (1 + spread)


def target_of_numpy(model, batch):
    """A reward that an environment computes from an action."""
    output = model(batch[0])
    reward = torch.tensor(-np.square(output.detach().numpy()).sum())
    return functional.mse_loss(output.sum() + 1, 0.9 * reward)


def offset_of_another_function(model, batch):
    """A constant of numpy is no term only because another function reads arrays."""
    similarity(model(batch[0]), batch[1])
    return functional.mse_loss(model(batch[0]), batch[1]) + torch.tensor(np.float32(0.1234567))


HEALTHY = [
    weight_of_numpy,
    target_of_numpy,
    offset_of_another_function,
    slope_with_history,
    value_of_another_loss,
    baseline_of_itself,
    flooding,
    weight_by_the_other_term,
    self_distillation,
    multiplier,
    regression_to_a_detached_target,
    scores_less_their_mean,
]


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, 3), ids=[loss.__name__ for loss in HEALTHY])
def test_constants_that_are_meant_are_fine(findings_of, loss):
    assert not told(findings_of(network(), (X, Y), loss))


def test_a_round_number_may_be_any_number(findings_of):
    def loss(model, batch):
        output = model(batch[0])
        share = (output > -9).float().mean().item()
        return functional.mse_loss(output, batch[1]) + 0.1 if share else output.sum()

    assert not told(findings_of(network(), (X, Y), loss))


def test_the_constant_of_a_frozen_teacher_is_fine(findings_of):
    class Distilled(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = network(3), copy.deepcopy(network(3)).requires_grad_(False)

    def loss(model, batch):
        goal = model.teacher(batch[0]).softmax(1)
        output = model.student(batch[0]).log_softmax(1)
        return (goal * goal.log()).sum(1).mean() - (goal * output).sum(1).mean()

    assert not told(findings_of(Distilled(), (X, Y), loss))


def test_a_number_that_is_no_such_value_is_near_but_fine(findings_of):
    def loss(model, batch):
        output = model(batch[0])
        smooth = (output[1:] - output[:-1]).abs().mean()
        return functional.mse_loss(output, batch[1]) + 0.2537 * smooth.item()

    assert not told(findings_of(network(), (X, Y), loss))


def adversarial(tmp_path, *, taken, steps_both=(), shared=False):
    """Train a generator by a distance and by a discriminator that judges what `taken` returns."""
    torch.manual_seed(0)
    generator, judge = nn.Linear(4, 6), nn.Linear(6, 1)
    weights = [*generator.parameters(), *(judge.parameters() if shared else ())]
    of_generator = torch.optim.SGD(weights, lr=0.01)
    of_judge = torch.optim.SGD(judge.parameters(), lr=0.01)

    def train():
        for step in range(8):
            fake = generator(torch.randn(16, 4))
            of_judge.zero_grad()
            (judge(torch.randn(16, 6)) - judge(fake.detach())).square().mean().backward()
            of_judge.step()
            of_generator.zero_grad()
            of_judge.zero_grad()
            loss = judge(taken(fake)).square().mean() + 3 * fake.square().mean()
            loss.backward()
            of_generator.step()
            if step in steps_both:
                of_judge.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS704"]


def test_term_that_only_reaches_another_optimizer_is_told(tmp_path):
    (found,) = adversarial(tmp_path, taken=lambda fake: fake.detach())
    assert (found.severity, len(found.parameters)) == ("error", 2)
    assert "taken=lambda fake: fake.detach()" in found.location.source


def test_term_through_another_network_is_fine(tmp_path):
    assert not adversarial(tmp_path, taken=lambda fake: fake)


@pytest.mark.nightly
@pytest.mark.parametrize("steps_both", some_on_push([range(8), range(1, 8, 2)], 2))
def test_term_of_which_another_optimizer_makes_use_is_fine(tmp_path, steps_both):
    assert not adversarial(tmp_path, taken=lambda fake: fake.detach(), steps_both=steps_both)


def test_term_of_the_same_optimizer_is_fine(tmp_path):
    assert not adversarial(tmp_path, taken=lambda fake: fake.detach(), shared=True)


def perceptual(tmp_path, *, taken, moved=False):
    """Compare features of a network without an optimizer, and the outputs themselves."""
    torch.manual_seed(0)
    generator, extractor = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    adam = torch.optim.Adam(generator.parameters(), lr=0.01)

    def train():
        for _ in range(8):
            adam.zero_grad()
            x, y = torch.randn(16, 4), torch.randn(16, 6)
            fake = generator(x)
            content = functional.l1_loss(extractor(taken(fake)), extractor(y).detach())
            (content + functional.l1_loss(fake, y)).backward()
            adam.step()
            if moved:
                for weight in extractor.parameters():
                    weight.data.sub_(weight.grad, alpha=0.1)
                    weight.grad = None

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS704"]


def test_features_of_a_detached_output_train_nothing(tmp_path):
    (found,) = perceptual(tmp_path, taken=lambda fake: fake.detach())
    assert (found.severity, len(found.parameters)) == ("error", 2)
    assert "taken=lambda fake: fake.detach()" in found.location.source


@pytest.mark.parametrize("moved", some_on_push([False, True], 2))
def test_features_of_an_output_are_fine(tmp_path, moved):
    assert not perceptual(tmp_path, taken=lambda fake: fake, moved=moved)


def test_features_that_the_script_trains_by_hand_are_near_but_fine(tmp_path):
    assert not perceptual(tmp_path, taken=lambda fake: fake.detach(), moved=True)


def equation(tmp_path, *, create_graph, weight=1.0):
    """Train a network by an equation of its derivatives and by the values at the ends."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        for _ in range(8):
            x = torch.rand(16, 1, requires_grad=True)
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            (curve,) = torch.autograd.grad(slope.sum(), x, create_graph=create_graph)
            residual = (curve + torch.sin(3 * x)).square().mean()
            optimizer.zero_grad()
            loss = weight * residual + model(torch.tensor([[0.0], [1.0]])).square().mean()
            loss.backward()
            optimizer.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS704"]


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_residual_that_only_reaches_the_inputs_is_told(tmp_path, weight):
    (found,) = equation(tmp_path, create_graph=False, weight=weight)
    assert found.severity == "error"
    assert "create_graph=create_graph" in found.location.source
    assert found.message.endswith("autograd.grad() without create_graph cuts it off")


def test_residual_with_a_graph_is_fine(tmp_path):
    assert not equation(tmp_path, create_graph=True)


def test_penalty_of_an_input_alone_is_fine(tmp_path):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        for _ in range(8):
            noise = torch.zeros_like(X, requires_grad=True)
            optimizer.zero_grad()
            loss = functional.mse_loss(model(X + noise), Y) + noise.square().mean()
            loss.backward()
            optimizer.step()

    assert not [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS704"]


def distilled(tmp_path, soft_term):
    """Train a student by labels and by a term of its logits and a teacher's, over eight steps."""
    torch.manual_seed(0)
    teacher, student = network(3), network(3)
    adam = torch.optim.Adam(student.parameters(), lr=1e-3)

    def train():
        for _ in range(8):
            x = torch.randn(16, 6)
            with torch.no_grad():
                goal = teacher(x)
            output = student(x)
            loss = functional.cross_entropy(output, x[:, :3].argmax(1))
            total = 0.1 * loss + 0.9 * soft_term(output, goal)
            adam.zero_grad()
            total.backward()
            adam.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS704"]


def divergence(output, goal):
    return functional.kl_div(
        output.log_softmax(1), goal.log_softmax(1), log_target=True, reduction="batchmean"
    )


@pytest.mark.nightly
def test_term_of_the_teacher_alone_is_an_error(tmp_path):
    (found,) = distilled(tmp_path, lambda output, goal: divergence(goal, goal.roll(1, 0)))
    assert found.severity == "error"
    assert found.location.source == "total = 0.1 * loss + 0.9 * soft_term(output, goal)"


@pytest.mark.parametrize(
    "soft_term",
    some_on_push(
        [
            divergence,
            # the entropy of the target only corrects the value
            lambda output, goal: (
                functional.cross_entropy(output, goal.softmax(1))
                + (goal.softmax(1) * goal.log_softmax(1)).sum(1).mean()
            ),
            # how much worse the student is than its teacher
            lambda output, goal: output.square().mean() - goal.square().mean(),
            # a number that no layer made
            lambda output, goal: torch.tensor(0.3) + output.square().mean(),
        ],
        {0, 2},
    ),
    ids=["divergence", "entropy", "difference", "number"],
)
def test_terms_of_student_and_teacher_are_fine(soft_term, tmp_path):
    assert not distilled(tmp_path, soft_term)


@pytest.mark.nightly
def test_critic_that_the_loss_also_passes_through_is_fine(tmp_path):
    """A constant completes the value of the distance that critic and generator argue about."""
    torch.manual_seed(0)
    generator, critic = network(6), network()
    adam = torch.optim.Adam(generator.parameters(), lr=1e-3)

    def train():
        for _ in range(8):
            with torch.no_grad():
                real = critic(torch.randn(16, 6)).mean()
            loss = (-critic(generator(torch.randn(16, 6)))).mean() + real
            adam.zero_grad()
            loss.backward()
            adam.step()

    assert not told(watching.findings_of(train, tmp_path))


def in_turns(tmp_path, *, judged, both=False):
    """Train a generator and a discriminator in turns at one line, as a trainer does."""
    torch.manual_seed(0)
    generator, judge = nn.Linear(4, 6), nn.Linear(6, 1)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
    of_judge = torch.optim.SGD(judge.parameters(), lr=0.01)

    def of_the_generator(fake):
        return judge(judged(fake)).square().mean() + 3 * fake.square().mean()

    def of_the_judge(fake):
        return (judge(torch.randn(16, 6)) - judge(fake.detach())).square().mean()

    def train():
        for step in range(11):
            fake = generator(torch.randn(16, 4))
            turn = step % 2
            parts = (of_the_generator, of_the_judge)
            loss = sum(part(fake) for part in parts) if both else parts[turn](fake)
            generator.zero_grad()
            judge.zero_grad()
            loss.backward()
            (of_generator, of_judge)[turn].step()

    return told(watching.findings_of(train, tmp_path))


def test_term_that_another_optimizer_uses_in_its_turn_only_by_another_line_is_told(tmp_path):
    (found,) = in_turns(tmp_path, judged=lambda fake: fake.detach())
    assert (found.severity, len(found.parameters)) == ("error", 2)
    assert "judged=lambda fake: fake.detach()" in found.location.source


@pytest.mark.parametrize("both", some_on_push([False, True], 2))
def test_term_of_players_that_take_turns_is_fine(tmp_path, both):
    assert not in_turns(tmp_path, judged=lambda fake: fake, both=both)


class Scaled(nn.Module):
    """A layer of a flow: a change of scale, and its log-determinant for each example."""

    def __init__(self, taken):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((6,), 0.1))
        self.taken = taken

    def forward(self, x):
        return x * self.log_scale.exp(), self.taken(self.log_scale).sum().expand(len(x))


class Flow(nn.Module):
    """Gives the log-likelihood of each example."""

    def __init__(self, taken):
        super().__init__()
        self.layers = nn.ModuleList([Scaled(taken), Scaled(taken)])

    def forward(self, x):
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, one = layer(x)
            total = total + one
        return -x.square().sum(1) + total


@pytest.mark.parametrize(
    ("taken", "expected"),
    some_on_push(
        [
            (lambda scale: scale.data, ["error"]),
            (lambda scale: scale.detach(), ["error"]),
            (lambda scale: scale, []),
            (lambda scale: scale + (scale.sigmoid() - scale).detach(), []),
        ],
        2,
    ),
    ids=["data", "detach", "whole", "straight through"],
)
def test_term_of_every_example_counts_too(findings_of, taken, expected):
    found = findings_of(Flow(taken), (X, Y), lambda output, _: -output.mean())
    assert [one.severity for one in told(found)] == expected


def test_baseline_that_is_subtracted_from_every_example_is_fine(findings_of):
    model = network()

    def loss(output, target):
        gain = output.squeeze(1) - output.detach().mean()
        return (gain * target.squeeze(1)).mean()

    assert not told(findings_of(model, (X, Y), loss))


def clipped_policy(take_ratio):
    """Return the loss of PPO; its advantage is a constant as it has to be."""

    def loss(output, target):
        logits, value = output[:, :3].log_softmax(1), output[:, 3]
        advantage = (target.squeeze(1) - value).detach()
        ratio = take_ratio((logits[:, 0] - logits[:, 0].detach() - 0.1 * target.squeeze(1)).exp())
        policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return policy + 0.5 * (value - target.squeeze(1)).square().mean() - 0.01 * logits.mean()

    return loss


@pytest.mark.nightly
def test_term_of_several_constants_is_one_finding_at_the_last_of_them(findings_of):
    loss = clipped_policy(lambda ratio: ratio.detach())
    (found,) = told(findings_of(network(4), (X, Y), loss))
    assert found.location.source == "loss = clipped_policy(lambda ratio: ratio.detach())"
    assert "advantage =" in "".join(one.source for one in found.related)


def test_advantage_that_is_a_constant_is_fine(findings_of):
    assert not told(findings_of(network(4), (X, Y), clipped_policy(lambda ratio: ratio)))


class Routed(nn.Module):
    """Takes for each example the two of four values that a router likes most."""

    def __init__(self):
        super().__init__()
        self.router, self.values = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        shares = self.router(x).softmax(-1)
        kept, chosen = shares.topk(2, dim=-1)
        output = (kept * self.values(x).gather(1, chosen)).sum(1, keepdim=True)
        counts = functional.one_hot(chosen, 4).sum(1).float().mean(0)
        return output, counts, shares.mean(0)


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        (lambda counts, _: counts.square().sum(), 1),
        (lambda counts, shares: (counts * shares).sum(), 0),
        (lambda counts, shares: (shares * (counts - 0.5).sign()).sum(), 0),
    ],
    ids=["counts alone", "counts and shares", "direction by counts"],
)
def test_term_of_choices_that_also_index_is_told(findings_of, balance, expected):
    torch.manual_seed(0)

    def loss(model, batch):
        output, counts, shares = model(batch[0])
        return functional.mse_loss(output, batch[1]) + 0.01 * balance(counts, shares)

    found = told(findings_of(Routed(), (X, Y), loss))
    assert len(found) == expected


class Scales(nn.Module):
    """Two critics of the same input."""

    def __init__(self):
        super().__init__()
        self.critics = nn.ModuleList(network() for _ in range(2))

    def forward(self, x):
        return [critic(x) for critic in self.critics]


def scored_together(critics, fake):
    return sum(-score.mean() for score in critics(fake.detach()))


def scored_apart(critics, fake):
    first = -critics.critics[0](fake.detach()).mean()
    second = -critics.critics[1](fake.detach()).mean()
    return first + second


def scored_with_a_gradient(critics, fake):
    return sum(-score.mean() for score in critics(fake))


@pytest.mark.parametrize(
    ("scored", "terms"),
    [(scored_together, [2]), (scored_apart, [1, 1]), (scored_with_a_gradient, [])],
)
def test_terms_behind_one_cut_are_one_finding(tmp_path, scored, terms):
    torch.manual_seed(0)
    generator, critics = network(6), Scales()
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.05)
    of_critics = torch.optim.SGD(critics.parameters(), lr=0.05)

    def train():
        for _ in range(8):
            fake = generator(X)
            of_critics.zero_grad()
            loss = sum((1 - score).square().mean() for score in critics(Y + X))
            loss = loss + sum(score.square().mean() for score in critics(fake.detach()))
            loss.backward()
            of_critics.step()
            of_generator.zero_grad()
            loss = functional.l1_loss(fake, X + 1) + scored(critics, fake)
            loss.backward()
            of_generator.step()

    told = [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS704"]
    assert [dict(one.evidence)["terms"] for one in told] == terms
