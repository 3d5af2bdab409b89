"""GS204 where nothing changes a prediction: how bad it is does not go by the size of its layer."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.nightly import some_on_push
from tests.rules.inspecting import marked_lines, only

X, CLASSES = torch.randn(48, 8, generator=torch.Generator().manual_seed(1)), torch.arange(48) % 4
BITS = (CLASSES > 1).float()


class TwoHeads(nn.Module):
    """A trunk, a small head and another that learns in any case."""

    def __init__(self, outputs: int = 1):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
        self.head, self.aux = nn.Linear(32, outputs), nn.Linear(32, 4)

    def forward(self, x):
        hidden = self.trunk(x)
        return self.head(hidden), self.aux(hidden)


def found_in(findings_of, predict, loss=functional.mse_loss, outputs=1, **chosen):
    """Return what is found where the small head's outputs go by way of `predict` into a loss."""

    def loss_fn(given, classes):
        output, aux = given
        return loss(predict(output).reshape(len(BITS), -1)[:, 0], BITS) + functional.cross_entropy(
            aux, classes
        )

    found = findings_of(TwoHeads(outputs), (X, CLASSES), loss_fn, **chosen)
    return [one for one in found if one.rule == "GS204"]


@pytest.mark.parametrize("probe_steps", [0, 3])
def test_a_softmax_over_one_output_is_an_error(findings_of, probe_steps):
    (found,) = found_in(
        findings_of,
        lambda output: output.softmax(dim=1),
        functional.binary_cross_entropy,
        probe_steps=probe_steps,
    )
    assert (found.severity, found.parameters) == ("error", ("head.weight", "head.bias"))
    assert "softmax over a dimension of one element is always 1" in found.message
    assert "use sigmoid for one output" in found.remedy


def test_a_softmax_over_two_outputs_is_healthy(findings_of):
    assert found_in(findings_of, lambda output: output.softmax(dim=1), outputs=2) == []


def test_a_log_softmax_over_one_output_is_always_0(findings_of):
    def loss_fn(output, target):
        return functional.cross_entropy(output, target)

    (found,) = findings_of(nn.Linear(8, 1), (X, torch.zeros(48, dtype=torch.long)), loss_fn)
    assert (found.rule, found.severity) == ("GS204", "error")
    assert "log_softmax over a dimension of one element is always 0" in found.message


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_softmax_over_one_channel_or_in_another_type_is_an_error(findings_of, dtype):
    class Mask(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 1, 3, dtype=dtype)

        def forward(self, x):
            return self.last(torch.relu(self.first(x)).to(dtype)).float().softmax(1)

    batch = torch.randn(4, 1, 8, 8), torch.rand(4, 1, 4, 4)
    (found,) = findings_of(Mask(), batch, functional.mse_loss)
    assert (found.rule, found.severity) == ("GS204", "error")
    assert "use sigmoid for one output" in found.remedy


SEQUENCE = torch.randn(48, 5, 8)


@pytest.mark.parametrize(("squeezed", "severity"), [(False, "error"), (True, None)])
def test_weights_of_a_pooling_are_told_from_one_output_in_every_place(
    findings_of, squeezed, severity
):
    """A score per position may go through a softmax over the positions."""

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(8, 1)

        def forward(self, x):
            score = self.score(x)
            return score.squeeze(-1).softmax(-1) if squeezed else score.softmax(-1)

    goal = torch.rand(48, 5) if squeezed else torch.rand(48, 5, 1)
    found = findings_of(Pooled(), (SEQUENCE, goal), functional.mse_loss)
    assert [one.severity for one in found if one.rule == "GS204"] == (
        [severity] if severity else []
    )


class Mixed(nn.Module):
    """Experts of which there is one, or a pooling over a sequence of one element."""

    def __init__(self, *, pools: bool):
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.expert = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))
        self.pools = pools

    def forward(self, x):
        if self.pools:
            x = x[:, None]
            weights = self.score(x).squeeze(-1).softmax(-1)
            return self.expert((weights[..., None] * x).sum(1))
        return self.score(x).softmax(-1) * self.expert(x)


@pytest.mark.parametrize("pools", [False, True])
def test_one_expert_and_one_position_are_notes(findings_of, pools):
    (found,) = findings_of(Mixed(pools=pools), (X, CLASSES), functional.cross_entropy)
    assert (found.rule, found.severity) == ("GS204", "note")
    assert "over a dimension of one element" in found.message


class Attended(nn.Module):
    """Weighs the positions of a sequence by a softmax over a dimension of the scores."""

    def __init__(self, dim: int, *, by_matrix: bool):
        super().__init__()
        self.score, self.head = nn.Linear(8, 1), nn.Linear(8, 64)
        self.last, self.dim, self.by_matrix = nn.Linear(64, 4), dim, by_matrix

    def forward(self, x):
        weights = self.score(x).softmax(self.dim)
        pooled = (weights * x).sum(1)
        if self.by_matrix:
            pooled = (weights.transpose(1, 2) @ x).squeeze(1)
        return self.last(torch.relu(self.head(pooled)))


@pytest.mark.parametrize("by_matrix", [False, True])
@pytest.mark.parametrize(("dim", "severities"), [(-1, ["error"]), (1, [])])
def test_an_attention_whose_weights_are_all_one_is_an_error(
    findings_of, by_matrix, dim, severities
):
    found = findings_of(
        Attended(dim, by_matrix=by_matrix), (SEQUENCE, CLASSES), functional.cross_entropy
    )
    assert [one.severity for one in found if one.rule == "GS204"] == severities


FLAT = {
    "clamp": (lambda output: (output - 5).clamp(0, 1), "warning"),
    "relu": (lambda output: torch.relu(output - 5), "warning"),
    "sigmoid": (lambda output: torch.sigmoid(1e4 * (output - 5)), "warning"),
    "round": (torch.round, "error"),
    "sign": (torch.sign, "error"),
}


@pytest.mark.parametrize(("predict", "severity"), some_on_push(FLAT.values(), 3), ids=FLAT)
def test_a_small_head_whose_outputs_are_flat_is_no_note(findings_of, predict, severity):
    (found,) = found_in(findings_of, predict)
    assert (found.severity, found.parameters) == (severity, ("head.weight", "head.bias"))
    assert dict(found.evidence)["share_of_trainable_elements"] < 0.05


def test_a_head_of_which_the_clamp_leaves_some_is_healthy(findings_of):
    assert found_in(findings_of, lambda output: output.clamp(float(BITS[0]), 3)) == []


TERMS = {
    "a margin that is kept": lambda output: torch.relu(output.abs() - 100).mean(),
    "free bits": lambda output: 0.1 * (output.square() / 2).clamp(min=50).sum(),
    "a mask that leaves nothing": lambda output: (output * torch.zeros_like(output)).sum(),
}


@pytest.mark.parametrize("term", some_on_push(TERMS.values(), 2), ids=TERMS)
def test_a_term_that_has_what_it_wants_is_a_note(findings_of, term):
    def loss_fn(given, classes):
        output, aux = given
        return term(output) + functional.cross_entropy(aux, classes)

    found = only(findings_of(TwoHeads(), (X, CLASSES), loss_fn), "GS204")
    assert found.severity == "note"


def test_a_softmax_that_is_a_layer_is_found_where_it_is_made(inspect_file, tmp_path):
    report = inspect_file(
        """
import torch
from torch import nn

class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.share = nn.Softmax(dim=-1)  # <-

    def forward(self, x):
        return self.share(self.score(x))  # runs

model = Judge()
batch = torch.randn(16, 8), torch.randint(2, (16, 1)).float()
loss_fn = nn.BCELoss()
"""
    )
    (found,) = report.findings
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert {place.line for place in found.related} == marked_lines(tmp_path / "model.py", "# runs")


class OverOneElement(nn.Module):
    """Weights of a sum over one element: each is divided by itself."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(8, 1), nn.Linear(8, 4)

    def forward(self, x):
        weights = self.score(x).exp()
        return self.head(x * (weights / weights.sum(-1, keepdim=True)))


def test_gradients_below_the_limit_of_rounding_behind_a_ratio_of_one_are_found():
    torch.manual_seed(0)
    batch = (torch.randn(64, 8), torch.arange(64) % 4)
    recording = gradscope.inspect(OverOneElement(), batch, "cross-entropy").recording
    norms = {
        recording.parameters[stat.parameter].name: stat.gradient.norm
        for stat in recording.parameter_stats
        if stat.step == 0
    }
    number = norms["score.weight"] / max(norms.values())
    assert 0 < number < 1e-5

    def found(rounding):
        settings = Settings(select=("GS204",), thresholds={"zero-gradient": {"rounding": rounding}})
        return {name for one in judge(recording, settings).findings for name in one.parameters}

    assert "score.weight" not in found(number * (1 - 1e-9))
    assert "score.weight" in found(number * (1 + 1e-9))


def test_layers_that_divide_by_the_sum_of_one_element_on_one_line_are_one_finding(findings_of):
    class Switched(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.ModuleList(nn.Linear(8, 4) for _ in range(3))
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            for router, layer in zip(self.router, self.layers, strict=True):
                weight = router(x).softmax(-1).topk(1, dim=-1).values
                weight = weight / weight.sum(-1, keepdim=True)
                x = x + weight * layer(x)
            return self.head(x)

    found = findings_of(Switched(), (X, CLASSES), functional.cross_entropy)
    (ratio,) = (one for one in found if one.rule == "GS204")
    assert {name.split(".")[0] for name in ratio.parameters} == {"router"}
    assert len(ratio.parameters) == 6


class Routed(nn.Module):
    """Experts, of which a router that is small beside them weighs the best few."""

    def __init__(self, best: int, *, before: bool = False) -> None:
        super().__init__()
        self.router, self.best, self.before = nn.Linear(8, 4, bias=False), best, before
        self.experts = nn.ModuleList(nn.Linear(8, 64) for _ in range(4))
        self.out = nn.Linear(64, 4)

    def forward(self, x):
        logits = self.router(x)
        top, chosen = (logits.softmax(-1) if self.before else logits).topk(self.best, -1)
        weights = top if self.before else top.softmax(-1)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        picked = outputs.gather(1, chosen[..., None].expand(-1, -1, 64))
        return self.out((weights[..., None] * picked).sum(1))


@pytest.mark.parametrize(
    ("best", "before", "severities"),
    some_on_push([(1, False, ["error"]), (2, False, []), (1, True, [])], {0, 1}),
)
def test_a_router_whose_softmax_sees_one_winner_is_an_error(findings_of, best, before, severities):
    torch.manual_seed(0)
    model = Routed(best, before=before)
    found = findings_of(model, (X, CLASSES), functional.cross_entropy)
    assert [one.severity for one in found if one.rule == "GS204"] == severities


class Spread(nn.Module):
    """A prediction whose logarithmic deviation is a clamped parameter."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.full((1,), start))

    def forward(self, x):
        return self.mean(x).squeeze(1), self.log_std.clamp(-5, 2)


@pytest.mark.parametrize(
    ("start", "severities"),
    some_on_push([(2.5, ["warning"]), (1.9, []), (-6.0, ["warning"])], {0, 1}),
)
def test_a_parameter_beyond_its_clamp_is_a_warning(findings_of, start, severities):
    def loss(given, bits):
        mean, log_std = given
        return (log_std + 0.5 * ((mean - bits) / log_std.exp()).square()).mean()

    torch.manual_seed(0)
    found = findings_of(Spread(start), (X, BITS), loss)
    assert [one.severity for one in found if one.rule == "GS204"] == severities
