"""Mistakes that the shapes, the memory or the copies in a script's forward show."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

B, T, C = 8, 5, 6
WORDS = torch.randn(B, T, C, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(0, C, (B, T), generator=torch.Generator().manual_seed(2))
LABELS = TOKENS[:, 0]


def trained(loss, *layers, steps=5):
    """Return a loop that minimises a loss of new layers, each from `C` to `C` features."""

    def loop():
        torch.manual_seed(0)
        made = [layer() for layer in layers]
        optimizer = torch.optim.SGD([p for one in made for p in one.parameters()], lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            loss(*made).backward()
            optimizer.step()

    return loop


def layer():
    return nn.Linear(C, C)


def pooled(dim):
    def loss(score, head):
        weights = score(WORDS).softmax(dim)
        return functional.cross_entropy(head((weights * WORDS).sum(1)), LABELS)

    return loss


def contrastive(query, key):
    scores = query(WORDS.mean(1)) @ key(WORDS.mean(1)).T
    both = scores.softmax(0).log().diagonal() + scores.softmax(1).log().diagonal()
    return functional.cross_entropy(query(WORDS[:, 0]), LABELS) - both.mean()


def attention_over_time(score, head):
    weights = score(WORDS.transpose(0, 1)).softmax(0)  # time comes first
    pooled = (weights * WORDS.transpose(0, 1)).sum(0)
    return functional.cross_entropy(head(pooled), LABELS)


def viewed(first, head):
    states = first(WORDS).view(T, B, C)
    return functional.cross_entropy(head(states.mean(0)), LABELS)


def transposed(first, head):
    states = first(WORDS).transpose(0, 1)
    return functional.cross_entropy(head(states.mean(0)), LABELS)


def one_query(first, head):
    query = first(WORDS.mean(1, keepdim=True)).reshape(1, B, C)
    return functional.cross_entropy(head(query[0]), LABELS)


def flattened(arrange_logits, arrange_tokens):
    def loss(head):
        logits = arrange_logits(head(WORDS))
        return functional.cross_entropy(logits, arrange_tokens(TOKENS).reshape(-1))

    return loss


def time_first(logits):
    return logits.transpose(0, 1).reshape(-1, C)


def batch_first(logits):
    return logits.reshape(-1, C)


def classes_second(logits):
    return logits.transpose(1, 2).reshape(-1, C)


def as_they_are(tokens):
    return tokens


def transposed_tokens(tokens):
    return tokens.t()


SICK = {
    "softmax over the examples": (pooled(0), layer, layer),
    "view for transpose": (viewed, layer, layer),
    "time-major logits": (flattened(time_first, as_they_are), layer),
    "batch-major logits": (flattened(batch_first, transposed_tokens), layer),
    "classes in the middle": (flattened(classes_second, as_they_are), layer),
}

HEALTHY = {
    "softmax over time": (pooled(1), layer, layer),
    "softmax over a batch of pairs": (contrastive, layer, layer),
    "time comes first": (attention_over_time, layer, layer),
    "transposed": (transposed, layer, layer),
    "a dimension of size 1": (one_query, layer, layer),
    "both time-major": (flattened(time_first, transposed_tokens), layer),
    "both batch-major": (flattened(batch_first, as_they_are), layer),
}


def told(loop, folder, code):
    return [one for one in findings_of(loop, folder) if one.rule == code]


@pytest.mark.parametrize("name", some_on_push(SICK, 3))
def test_mixed_examples_are_an_error(name, tmp_path):
    (found,) = told(trained(*SICK[name]), tmp_path, "GS707")
    assert found.severity == "error"
    assert found.location.file == __file__


@pytest.mark.parametrize("name", some_on_push(HEALTHY, 3))
def test_examples_that_stay_apart_or_meet_on_purpose_are_fine(name, tmp_path):
    assert not told(trained(*HEALTHY[name]), tmp_path, "GS707")


def shares_data(target, online):
    for t, p in zip(target.parameters(), online.parameters(), strict=True):
        t.data = p.data


def copies_values(target, online):
    target.load_state_dict(online.state_dict())


def q_learning(sync):
    def loop():
        torch.manual_seed(0)
        online = nn.Sequential(nn.Linear(C, 4), nn.ReLU(), nn.Linear(4, 3))
        target = copy.deepcopy(online)
        sync(target, online)
        optimizer = torch.optim.SGD(online.parameters(), lr=0.01)
        for _ in range(5):
            with torch.no_grad():
                goal = 1.0 + 0.9 * target(WORDS[:, 1]).max(1).values
            chosen = online(WORDS[:, 0]).max(1).values
            optimizer.zero_grad()
            functional.smooth_l1_loss(chosen, goal).backward()
            optimizer.step()

    return loop


def test_target_in_the_memory_of_the_trained_network(tmp_path):
    (found,) = told(q_learning(shares_data), tmp_path, "GS211")
    lines, start = inspect.getsourcelines(shares_data)
    assert (found.severity, found.location.line) == ("warning", start + len(lines) - 1)
    assert "memory" in found.message


def test_target_that_is_copied_is_fine(tmp_path):
    assert not told(q_learning(copies_values), tmp_path, "GS211")


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_tensors_in_a_new_tensor_that_requires_grad_are_cut_off(tmp_path):
    def reinforced(policy):
        scores = policy(WORDS[:, 0]).log_softmax(-1)
        return -torch.tensor([row[0] for row in scores], requires_grad=True).mean()

    (found,) = told(trained(reinforced, layer), tmp_path, "GS201")
    assert found.severity == "error"
    assert "torch.tensor" in found.message


class Codes(nn.Module):
    """A codebook with a straight-through estimator."""

    def __init__(self, moves):
        super().__init__()
        self.encoder, self.codes, self.decoder = layer(), nn.Embedding(4, C), layer()
        self.moves = moves

    def forward(self, x):
        code = self.encoder(x)
        nearest = self.codes(torch.cdist(code, self.codes.weight.detach()).argmin(-1))
        if self.moves:
            with torch.no_grad():
                self.codes.weight.lerp_(code.detach().mean(0).expand(4, C), 0.1)
        pulled = functional.mse_loss(code, nearest.detach())
        return functional.mse_loss(self.decoder(code + (nearest - code).detach()), x) + pulled


@pytest.mark.parametrize(("moves", "severity"), [(False, "error"), (True, "note")])
def test_codebook_that_nothing_moves_is_an_error(moves, severity, tmp_path):
    loop = trained(lambda codes: codes(WORDS[:, 0]), lambda: Codes(moves))
    assert [one.severity for one in told(loop, tmp_path, "GS201")] == [severity]


def build():
    return nn.Sequential(nn.Linear(C, 4), nn.Linear(4, 1))


def resumed():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(40):
        if step == 10:
            model = build()  # again
        model.zero_grad()
        model(WORDS).square().mean().backward()
        optimizer.step()


@pytest.mark.nightly
def test_line_that_calls_the_function_that_makes_a_newer_model(tmp_path):
    found = findings_of(resumed, tmp_path)
    lines, start = inspect.getsourcelines(resumed)
    again = next(start + index for index, line in enumerate(lines) if "# again" in line)
    (ceased,) = (one for one in found if one.rule == "GS306")
    assert ceased.location.line == again
