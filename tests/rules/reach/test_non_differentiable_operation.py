"""GS202: choices and draws between parameters and the loss."""

import pytest
import torch
from torch import nn
from torch.distributions import Laplace, Normal
from torch.nn import functional

from tests.nightly import some_on_push

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def layers(inputs: int, outputs: int, hidden: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class Chooser(nn.Module):
    """A part that chooses, in a way of choice, and a part that is given the choice."""

    def __init__(self, choose):
        super().__init__()
        self.chooser, self.table, self.head = layers(8, 4), nn.Embedding(4, 8), layers(8, 4)
        self.choose = choose

    def forward(self, x):
        return self.head(self.choose(self, self.chooser(x), x))


def by_argmax(model, scores, x):
    return x + model.table(scores.argmax(dim=-1))


def by_topk(model, scores, x):
    return x + model.table(scores.topk(1).indices.squeeze(-1))


def by_argsort(model, scores, x):
    return x + model.table(scores.argsort(dim=-1)[:, 0])


def by_max(model, scores, x):
    return x + model.table(scores.max(dim=-1)[1])


def by_comparison(model, scores, x):
    return x + (scores > 0).float() @ model.table.weight


def by_cast(model, scores, x):
    return x + model.table(scores.sigmoid().mul(3.9).long()[:, 0])


def by_multinomial(model, scores, x):
    return x + model.table(torch.multinomial(scores.softmax(dim=-1), 1).squeeze(-1))


def by_sample(model, scores, x):
    return x + Normal(scores, 1.0).sample() @ model.table.weight


def by_sample_without_a_function_of_its_own(model, scores, x):
    return x + Laplace(scores, 1.0).sample() @ model.table.weight


def by_bucketize(model, scores, x):
    return x + model.table(torch.bucketize(scores.mean(-1), torch.tensor([-0.5, 0.0, 0.5])))


def by_searchsorted(model, scores, x):
    return x + model.table(torch.searchsorted(torch.tensor([-0.5, 0.0, 0.5]), scores.mean(-1)))


def by_bool(model, scores, x):
    return x + scores.bool().float() @ model.table.weight


WORDS = {
    by_bucketize: "bucketize()",
    by_searchsorted: "searchsorted()",
    by_bool: "a cast to integers (bool())",
    by_argmax: "argmax()",
    by_topk: "topk()",
    by_argsort: "argsort()",
    by_max: "max()",
    by_comparison: "a comparison (gt)",
    by_cast: "a cast to integers (long())",
    by_multinomial: "a draw",
    by_sample: "a draw",
    by_sample_without_a_function_of_its_own: "a draw",
}


@pytest.mark.parametrize(
    ("choose", "words"), some_on_push(WORDS.items(), 4), ids=[choose.__name__ for choose in WORDS]
)
def test_choice_between_two_parts_is_an_error(findings_of, choose, words):
    torch.manual_seed(0)
    (found,) = findings_of(Chooser(choose), (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert (found.rule, found.severity) == ("GS202", "error")
    assert found.modules == ("chooser.0", "chooser.2")
    assert found.location.function == choose.__qualname__
    assert words in found.message


class Gated(nn.Module):
    """A part that chooses the features of the one layer that learns."""

    def __init__(self, choose):
        super().__init__()
        self.chooser, self.head, self.choose = nn.Linear(8, 8), nn.Linear(8, 4), choose

    def forward(self, x):
        return self.head(self.choose(self.chooser(x), x))


@pytest.mark.parametrize(
    "choose",
    [
        lambda scores, x: x * (scores > 0),
        lambda scores, x: functional.one_hot(scores.argmax(-1), 8).float(),
        lambda scores, x: torch.zeros_like(x).scatter(1, scores.topk(2).indices, 1.0),
        lambda scores, x: Normal(scores, 1.0).sample(),
        lambda scores, x: scores.int().float(),
    ],
    ids=["comparison", "argmax", "topk", "sample", "cast"],
)
def test_choice_under_a_single_layer_is_no_frozen_backbone(findings_of, choose):
    torch.manual_seed(0)
    (found,) = findings_of(Gated(choose), (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert (found.rule, found.severity) == ("GS202", "error")
    assert found.parameters == ("chooser.weight", "chooser.bias")


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda out: functional.cross_entropy(out[0], out[1].argmax(-1)),
        lambda out: functional.binary_cross_entropy_with_logits(out[0], (out[1] > 0).float()),
        lambda out: functional.nll_loss(out[0].log_softmax(-1), out[1].argmax(-1)),
    ],
    ids=["classes", "several classes", "nll"],
)
def test_labels_of_a_teacher_are_a_note(findings_of, loss_fn):
    class Taught(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x):
            return self.student(x), self.teacher(x)

    (found,) = findings_of(Taught(), X, lambda out, _: loss_fn(out), probe_steps=0)
    assert (found.rule, found.severity) == ("GS202", "note")


def by_softmax(model, scores, x):
    return x + scores.softmax(dim=-1) @ model.table.weight


def by_gumbel(model, scores, x):
    return x + functional.gumbel_softmax(scores, hard=True) @ model.table.weight


def by_rsample(model, scores, x):
    return x + Normal(scores, 1.0).rsample() @ model.table.weight


def by_topk_and_its_values(model, scores, x):
    values, index = scores.softmax(dim=-1).topk(2)
    return x + (values.unsqueeze(-1) * model.table(index)).sum(dim=1)


def by_straight_through(model, scores, x):
    hard = (scores > 0).float()
    return x + (scores + (hard - scores).detach()) @ model.table.weight


def by_swapped_straight_through(model, scores, x):
    chosen = model.table(scores.argmax(dim=-1))
    code = (chosen - scores @ model.table.weight).detach() + chosen
    return x + code


def test_an_estimator_that_adds_to_the_choice_is_found_at_its_line(findings_of):
    torch.manual_seed(0)
    found = findings_of(
        Chooser(by_swapped_straight_through), (X, CLASSES), functional.cross_entropy, probe_steps=0
    )
    (one,) = [one for one in found if one.rule == "GS202"]
    assert one.severity == "error"
    assert one.location.source.startswith("code = ")
    assert "argmax" in one.related[0].source


def by_mask_of_what_learns_otherwise(model, scores, x):
    return x + (scores * (scores > 0)) @ model.table.weight


@pytest.mark.parametrize(
    "choose",
    [
        by_softmax,
        by_gumbel,
        by_rsample,
        by_topk_and_its_values,
        by_straight_through,
        by_mask_of_what_learns_otherwise,
    ],
    ids=lambda choose: choose.__name__,
)
def test_choice_with_a_way_for_the_gradient_is_healthy(findings_of, choose):
    torch.manual_seed(0)
    assert findings_of(Chooser(choose), (X, CLASSES), functional.cross_entropy, probe_steps=0) == ()


def test_pseudo_label_of_a_teacher_is_a_note(findings_of):
    class Taught(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = layers(8, 4, hidden=32), layers(8, 4)

        def forward(self, x):
            return self.student(x), self.teacher(x).argmax(dim=-1)

    (found,) = findings_of(
        Taught(), X, lambda output: functional.cross_entropy(*output), probe_steps=0
    )
    assert (found.rule, found.severity) == ("GS202", "note")


def test_what_the_optimizer_does_not_hold_is_a_note(findings_of):
    model = Chooser(by_argmax)
    optimizer = torch.optim.Adam([*model.table.parameters(), *model.head.parameters()])
    (found,) = findings_of(
        model, (X, CLASSES), functional.cross_entropy, optimizer=optimizer, probe_steps=0
    )
    assert found.severity == "note"
    assert dict(found.evidence)["held_by_optimizer"] is False
