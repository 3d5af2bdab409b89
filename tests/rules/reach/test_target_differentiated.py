"""GS211: targets that the network itself predicts, and pairs that are drawn together on purpose."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.inspecting import only

GENERATOR = torch.Generator().manual_seed(1)
STATES = torch.randn(32, 6, generator=GENERATOR)
NEXT = torch.randn(32, 6, generator=GENERATOR)
REWARD = torch.randn(32, generator=GENERATOR)
DONE = torch.arange(32) % 5 == 0
ACTION = torch.arange(32) % 3
ROWS = torch.arange(32)


class Agent(nn.Module):
    """A network, and a loss that asks it about two states."""

    def __init__(self, loss, outputs: int):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, outputs))
        self.loss = loss

    def forward(self, state, following):
        return self.loss(self.network, state, following)


def values(q, s, n):
    return ((REWARD + 0.9 * q(n)[:, 0] * ~DONE - q(s)[:, 0]) ** 2).mean()


def columns(q, s, n):
    return functional.mse_loss(q(s)[:, :1], REWARD[:, None] + 0.9 * q(n)[:, :1])


def best_action(q, s, n):
    return functional.smooth_l1_loss(q(s)[ROWS, ACTION], REWARD + 0.9 * q(n).max(1).values)


def target_first(q, s, n):
    return functional.mse_loss(REWARD + 0.9 * q(n).amax(1), q(s)[ROWS, ACTION])


def chosen_by_itself(q, s, n):
    following = q(n)
    best = following.argmax(1, keepdim=True)
    target = torch.where(DONE, REWARD, REWARD + 0.9 * following.gather(1, best)[:, 0])
    return functional.huber_loss(q(s)[ROWS, ACTION], target)


def written_into_a_copy(q, s, n):
    value = q(s)
    target = value.detach().clone()
    target[ROWS, ACTION] = REWARD + 0.9 * q(n).max(1).values
    return functional.mse_loss(value, target)


def multiplied_by_itself(q, s, n):
    error = REWARD + 0.9 * q(n)[:, 0] - q(s)[:, 0]
    return (error * error).mean()


def after_two_steps(q, s, n):
    return functional.mse_loss(q(s)[:, 0], REWARD + 0.9 * (REWARD + 0.9 * q(n)[:, 0]))


def overlap(q, s, n):
    """Objects of a detector, whose score is to become the overlap of its own box."""
    out = q(s)
    target = torch.zeros(32)
    target[ROWS[::3]] = torch.exp(-out[::3, 1].abs()).clamp(0)
    return functional.binary_cross_entropy_with_logits(out[:, 0], target)


def overlap_detached(q, s, n):
    out = q(s)
    target = torch.zeros(32)
    target[ROWS[::3]] = torch.exp(-out[::3, 1].abs()).detach()
    return functional.binary_cross_entropy_with_logits(out[:, 0], target)


def agreement(q, s, n):
    """Two views that are to agree, both with a gradient."""
    one, other = q(s)[:, 0], q(n)[:, 0]
    return functional.binary_cross_entropy_with_logits(one, other.sigmoid()) + (
        functional.binary_cross_entropy_with_logits(other, one.sigmoid())
    )


@pytest.mark.parametrize(
    "loss",
    some_on_push(
        [
            overlap,
            values,
            columns,
            best_action,
            target_first,
            chosen_by_itself,
            written_into_a_copy,
            multiplied_by_itself,
            after_two_steps,
        ],
        3,
    ),
)
def test_a_target_of_the_same_network_is_a_warning(findings_of, loss):
    finding = only(findings_of(Agent(loss, 3), {"state": STATES, "following": NEXT}), "GS211")
    assert finding.severity == "warning"
    assert len(finding.parameters) == 4


def detached(q, s, n):
    return functional.mse_loss(q(s)[ROWS, ACTION], REWARD + 0.9 * q(n).max(1).values.detach())


def without_grad(q, s, n):
    with torch.no_grad():
        target = REWARD + 0.9 * q(n).max(1).values
    return functional.mse_loss(q(s)[ROWS, ACTION], target)


def consistent(q, s, n):
    supervised = functional.cross_entropy(q(s), ACTION)
    return supervised + functional.mse_loss(q(s), q(n))


def equivariant(q, s, n):
    return functional.mse_loss(q(2 * s + 1), 2 * q(s) + 1)


def smooth(q, s, n):
    y = q(s)
    return (y[1:] - y[:-1]).pow(2).mean()


def residual(q, s, n):
    return functional.mse_loss(s[:, :1] + 0.1 * q(s)[:, :1], n[:, :1])


def integrated(q, s, n):
    first = q(s)[:, :1]
    return ((q(n)[:, :1] - (first + 0.1 * torch.sin(first))) ** 2).mean()


def contrastive(q, s, n):
    apart = (q(s) - q(n)).norm(dim=1)
    return torch.where(DONE, apart, functional.relu(1 - apart)).square().mean()


def between_others(q, s, n):
    return functional.triplet_margin_loss(q(s), q(n), q(s.roll(1, 0)))


@pytest.mark.parametrize(
    "loss",
    some_on_push(
        [
            overlap_detached,
            detached,
            without_grad,
            agreement,
            consistent,
            equivariant,
            smooth,
            residual,
            integrated,
            contrastive,
            between_others,
        ],
        3,
    ),
)
def test_pairs_that_are_drawn_together_on_purpose_are_not_found(findings_of, loss):
    found = findings_of(Agent(loss, 3), {"state": STATES, "following": NEXT})
    assert "GS211" not in {finding.rule for finding in found}


def test_a_target_network_of_its_own_is_not_found(findings_of):
    class TwoNetworks(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.slow = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, state, following):
            target = REWARD + 0.9 * self.slow(following).max(1).values
            return functional.mse_loss(self.online(state)[ROWS, ACTION], target)

    found = findings_of(TwoNetworks(), {"state": STATES, "following": NEXT})
    assert "GS211" not in {finding.rule for finding in found}


class Distillation(nn.Module):
    """A student, a teacher, and a loss that compares them."""

    def __init__(self, loss):
        super().__init__()
        self.student, self.teacher = nn.Linear(6, 3), nn.Linear(6, 3)
        self.loss = loss

    def forward(self, x, _):
        return self.loss(self.student(x), self.teacher(x))


def distilled(student, teacher):
    divergence = functional.kl_div(
        functional.log_softmax(student, 1), functional.softmax(teacher, 1), reduction="batchmean"
    )
    return divergence + functional.cross_entropy(student, ACTION)


def soft_targets(student, teacher):
    return functional.cross_entropy(student, teacher.softmax(1))


def of_detached(student, teacher):
    return distilled(student, teacher.detach())


def mutual(student, teacher):
    return distilled(student, teacher) + distilled(teacher, student)


def teacher_learns_itself(student, teacher):
    return distilled(student, teacher) + functional.cross_entropy(teacher, ACTION)


def taught(findings_of, loss, held):
    model = Distillation(loss)
    optimizer = torch.optim.SGD(getattr(model, held).parameters() if held else model.parameters())
    batch = {"x": STATES, "_": NEXT}
    found = findings_of(model, batch, optimizer=optimizer)
    return [one for one in found if one.rule == "GS211"]


@pytest.mark.parametrize("loss", [distilled, soft_targets])
def test_teacher_that_only_its_student_trains_is_a_warning(findings_of, loss):
    (found,) = taught(findings_of, loss, None)
    assert found.severity == "warning"
    assert found.parameters == ("teacher.weight", "teacher.bias")


@pytest.mark.parametrize(
    ("loss", "held"),
    [(of_detached, None), (mutual, None), (teacher_learns_itself, None), (distilled, "student")],
)
def test_teacher_that_learns_otherwise_or_not_at_all_is_fine(findings_of, loss, held):
    assert not taught(findings_of, loss, held)
