"""GS701: what a loss normalises again, and what only looks like it."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules.inspecting import only

X = torch.randn(20, 8, generator=torch.Generator().manual_seed(1))
CLASSES = torch.arange(20) % 4
SHARES = torch.rand(20, 4, generator=torch.Generator().manual_seed(2))


def network(*last: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 4), *last)


def severities(findings) -> list[str]:
    return [finding.severity for finding in findings if finding.rule == "GS701"]


@pytest.mark.parametrize(
    ("last", "loss", "target", "severity"),
    [
        (nn.Softmax(-1), functional.cross_entropy, CLASSES, "error"),
        (nn.Softmax(1), nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES, "error"),
        (nn.Softmax(-1), functional.cross_entropy, SHARES, "error"),
        (nn.Sigmoid(), functional.binary_cross_entropy_with_logits, SHARES, "error"),
        (nn.Sigmoid(), nn.BCEWithLogitsLoss(), SHARES, "error"),
        (nn.Softmax(-1), functional.binary_cross_entropy_with_logits, SHARES, "error"),
        (nn.Softmax(-1), functional.nll_loss, CLASSES, "error"),
        (nn.Softmax(-1), nn.KLDivLoss(reduction="batchmean"), SHARES.softmax(-1), "error"),
        (nn.Identity(), functional.nll_loss, CLASSES, "error"),
        (nn.Identity(), nn.KLDivLoss(reduction="batchmean"), SHARES.softmax(-1), "error"),
        (nn.Sigmoid(), functional.cross_entropy, CLASSES, "warning"),
        (nn.ReLU(), functional.cross_entropy, CLASSES, "warning"),
        (nn.ReLU(), nn.BCEWithLogitsLoss(), SHARES, "error"),
        (nn.LogSoftmax(-1), functional.cross_entropy, CLASSES, "note"),
    ],
)
def test_what_a_loss_normalises_again_is_found(findings_of, last, loss, target, severity):
    assert severities(findings_of(network(last), (X, target), loss)) == [severity]


class Exponential(nn.Module):
    """The probabilities of a model that returns their logarithms."""

    def forward(self, x):
        return x.exp()


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((nn.LogSoftmax(-1), Exponential()), ["error"]),
        ((nn.LogSoftmax(0), Exponential()), []),  # weights of the examples
        ((Exponential(),), []),
    ],
)
def test_the_exponential_of_a_log_softmax_is_a_softmax(findings_of, layers, expected):
    found = findings_of(network(*layers), (X, CLASSES), functional.cross_entropy)
    assert severities(found) == expected


def kept(x):
    return x


def tempered(x):
    return 10 * x.softmax(-1)


def of_logarithm(x):
    return (x.softmax(-1) + 1e-6).log()


@pytest.mark.parametrize(
    ("change", "loss", "target"),
    [
        (kept, functional.cross_entropy, CLASSES),
        (tempered, functional.cross_entropy, CLASSES),
        (of_logarithm, functional.cross_entropy, CLASSES),
        (lambda x: x.log_softmax(-1), functional.nll_loss, CLASSES),
        (lambda x: x.log_softmax(-1), nn.KLDivLoss(reduction="batchmean"), SHARES.softmax(-1)),
        # The loss of a focal classifier: logarithms with a weight for each.
        (lambda x: (1 - x.softmax(-1)) ** 2 * x.log_softmax(-1), functional.nll_loss, CLASSES),
        (functional.logsigmoid, functional.nll_loss, CLASSES),
        (functional.leaky_relu, functional.cross_entropy, CLASSES),
        # The last layers of SqueezeNet.
        (lambda x: x.relu()[..., None].mean(-1), functional.cross_entropy, CLASSES),
        (lambda x: x.relu() - x.mean(), nn.BCEWithLogitsLoss(), SHARES),
        (torch.sigmoid, functional.binary_cross_entropy, SHARES),
        (lambda x: x.softmax(-1), functional.mse_loss, SHARES),
        (lambda x: x * x.softmax(-1), functional.cross_entropy, CLASSES),
        (lambda x: torch.sigmoid(x) @ torch.eye(4), functional.cross_entropy, CLASSES),
    ],
)
def test_what_is_normalised_once_is_not_found(findings_of, change, loss, target):
    found = findings_of(network(), (X, target), lambda output, target: loss(change(output), target))
    assert severities(found) == []


CLIPS = torch.randn(20, 6, 8, generator=torch.Generator().manual_seed(7))


class Pooled(nn.Module):
    """Classifies frames, and pools them with weights of their own."""

    def __init__(self, pool):
        super().__init__()
        self.score, self.classify, self.pool = nn.Linear(8, 4), nn.Linear(8, 4), pool

    def forward(self, frames):
        return self.pool(self.score(frames), self.classify(frames))


BINARY = functional.binary_cross_entropy_with_logits


@pytest.mark.parametrize(
    ("pool", "loss", "expected"),
    [
        (lambda w, x: (w.softmax(1) * x.sigmoid()).sum(1), BINARY, ["error"]),
        (lambda w, x: (x.sigmoid() * w.softmax(1)).sum(1).clamp(0, 1), BINARY, ["error"]),
        (lambda w, x: x.sigmoid().mean(1), BINARY, ["error"]),
        (lambda w, x: x.softmax(-1).mean(1), functional.cross_entropy, ["error"]),
        (lambda w, x: (w.softmax(1) * x).sum(1), BINARY, []),
        (lambda w, x: (w.softmax(1) * x.relu()).sum(1), BINARY, []),
        (lambda w, x: (w.softmax(2) * x.sigmoid()).sum(1), BINARY, []),
        (lambda w, x: (w * x.sigmoid()).sum(1), BINARY, []),
        (lambda w, x: x.sigmoid().sum(1), BINARY, []),
        (lambda w, x: x.relu().mean(1), BINARY, []),
    ],
)
def test_averages_of_probabilities_are_probabilities(findings_of, pool, loss, expected):
    target = CLASSES if loss is functional.cross_entropy else SHARES
    found = [one for one in findings_of(Pooled(pool), (CLIPS, target), loss) if one.rule == "GS701"]
    assert severities(found) == expected


def test_softmax_before_a_log_softmax_written_by_hand_is_found_with_both_lines(findings_of):
    def loss(output, target):
        probabilities = output.softmax(dim=-1)
        scores = probabilities.clamp(min=1e-7).log_softmax(dim=-1)
        return -scores.gather(1, target[:, None]).mean()

    found = only(findings_of(network(), (X, CLASSES), loss), "GS701")
    first = inspect.getsourcelines(loss)[1]
    assert found.location.line == first + 1
    assert [position.line for position in found.related] == [first + 2]


def test_the_dimension_decides(findings_of):
    square = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    model = nn.Linear(8, 6)

    def columns_after_rows(output, target):
        return -output.softmax(-1).log_softmax(0).diagonal().mean()

    def rows_after_rows(output, target):
        return -output.softmax(-1).log_softmax(1).diagonal().mean()

    batch = square, torch.arange(6)
    assert severities(findings_of(model, batch, columns_after_rows)) == []
    assert severities(findings_of(model, batch, rows_after_rows)) == ["error"]


def test_softmax_over_channels_is_found_through_turned_and_flattened_images(findings_of):
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Softmax(dim=1))
    images, classes = torch.rand(4, 1, 5, 5), torch.randint(3, (4, 5, 5))

    def flat(output, target):
        logits = output.permute(0, 2, 3, 1).reshape(-1, 3)
        return functional.cross_entropy(logits, target.reshape(-1))

    for loss in (flat, functional.cross_entropy):
        assert severities(findings_of(model, (images, classes), loss)) == ["error"]


def test_softmaxes_of_single_steps_are_found_once_where_they_are_stacked(findings_of):
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            state, steps = torch.zeros(len(x), 8), []
            for _ in range(3):
                state = self.cell(x, state)
                steps.append(self.head(state).softmax(-1))
            return torch.stack(steps, dim=1)

    def loss(output, target):
        return functional.cross_entropy(output.transpose(1, 2), target[:, None].expand(-1, 3))

    assert severities(findings_of(Decoder(), (X, CLASSES), loss)) == ["error"]


def test_probabilities_before_ctc_loss_are_found(findings_of):
    def loss(normalise):
        def compute(output, target):
            steps = normalise(output.reshape(10, 2, 4), dim=-1)
            lengths = torch.tensor([10, 10]), torch.tensor([3, 3])
            return functional.ctc_loss(steps, torch.tensor([[1, 2, 3], [3, 2, 1]]), *lengths)

        return compute

    assert severities(findings_of(network(), (X, CLASSES), loss(torch.softmax))) == ["error"]
    assert severities(findings_of(network(), (X, CLASSES), loss(torch.log_softmax))) == []


def test_a_model_may_normalise_twice_inside(findings_of):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.head(x * self.gate(x).softmax(-1).log_softmax(-1))

    assert severities(findings_of(Gated(), (X, CLASSES), functional.cross_entropy)) == []


def test_attention_and_distillation_are_not_found(findings_of):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            attended, _ = self.attention(x[None], x[None], x[None])
            return self.head(attended[0])

    def distilled(output, target):
        teacher = functional.softmax(output.detach().roll(1, 0) / 2, dim=-1)
        soft = functional.kl_div(
            functional.log_softmax(output / 2, dim=-1), teacher, reduction="batchmean"
        )
        return functional.cross_entropy(output, target) + soft

    assert severities(findings_of(Attending(), (X, CLASSES), distilled)) == []


def test_a_layer_in_a_sequence_is_found_where_it_is_made(inspect_file):
    report = inspect_file(
        "import torch\n"
        "from torch import nn\n"
        "model = nn.Sequential(\n"
        "    nn.Linear(8, 4),\n"
        "    nn.Softmax(dim=-1),\n"
        ")\n"
        "batch = torch.randn(20, 8), torch.arange(20) % 4\n"
        "criterion = nn.CrossEntropyLoss()\n"
    )
    assert only(report.findings, "GS701").location.line == 5


def test_the_message_on_raw_logits_says_what_the_loss_expects(findings_of):
    (finding,) = [
        one
        for one in findings_of(network(), (X, CLASSES), functional.nll_loss)
        if one.rule == "GS701"
    ]
    assert finding.message.startswith("nll_loss gets the result of a linear layer")
    assert finding.remedy == "apply log_softmax to it, or use cross_entropy"


LENGTHS = torch.full((5,), 6), torch.full((5,), 2)


def spelled(turn):
    """The CTC loss of five texts, with what a function makes of the logits (time, batch, class)."""

    def loss(output, target):
        texts = torch.ones(5, 2, dtype=torch.long)
        return functional.ctc_loss(turn(output), texts, *LENGTHS)

    return loss


FRAMES = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(4))


class BatchFirst(nn.Module):
    """A layer that adds its bias in place, since its input is not contiguous."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, frames):
        return self.layer(frames.transpose(0, 1))


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (lambda x: x.transpose(0, 1), ["error"]),
        (lambda x: x.transpose(0, 1).log_softmax(2), []),
        (lambda x: x.log_softmax(2).transpose(0, 1), []),
        (lambda x: (x + x.logsumexp(2, keepdim=True)).transpose(0, 1), []),
    ],
    ids=["raw", "normalised", "turned afterwards", "another sum"],
)
def test_logits_of_a_turned_batch_before_ctc_loss_are_found(findings_of, turn, expected):
    assert severities(findings_of(BatchFirst(), (FRAMES, CLASSES), spelled(turn))) == expected


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x.log_softmax(0),
        lambda x: x.log_softmax(1),
        lambda x: x.transpose(0, 1).log_softmax(0).transpose(0, 1),
    ],
    ids=["time", "batch", "turned"],
)
def test_symbols_that_compete_along_another_dimension_are_found(findings_of, turn):
    found = only(findings_of(network(), (FRAMES, CLASSES), spelled(turn)), "GS701")
    assert found.severity == "error"
    assert dict(found.evidence)["dimension_of_classes"] == 2


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x.log_softmax(2),
        lambda x: x.transpose(0, 1).log_softmax(-1).transpose(0, 1),
        lambda x: x.transpose(1, 2).log_softmax(1).transpose(1, 2),
        lambda x: x.reshape(30, 4).log_softmax(1).view(6, 5, 4),
        lambda x: x.softmax(-1).log(),
    ],
    ids=["last", "batch first", "turned", "flat", "logarithm"],
)
def test_symbols_that_compete_with_each_other_are_fine(findings_of, turn):
    assert not severities(findings_of(network(), (FRAMES, CLASSES), spelled(turn)))


@pytest.mark.parametrize(
    ("normalise", "outputs", "expected"),
    [
        (lambda x: x.log_softmax(0), 4, ["error"]),
        (lambda x: x.softmax(0).log(), 4, ["error"]),
        (lambda x: x.log_softmax(1), 4, []),
        (lambda x: x.T.log_softmax(0).T, 4, []),
        (lambda x: x.log_softmax(1)[:, :4], 5, []),
    ],
    ids=["batch", "logarithm", "classes", "turned", "some of all classes"],
)
def test_classes_must_compete_before_nll_loss(findings_of, normalise, outputs, expected):
    def loss(output, target):
        return functional.nll_loss(normalise(output), target)

    assert severities(findings_of(nn.Linear(8, outputs), (X, CLASSES), loss)) == expected


class StepByStep(nn.Module):
    """Writes the scores of each time step into one tensor."""

    def __init__(self, last):
        super().__init__()
        self.layer, self.last = nn.Linear(8, 4), last

    def forward(self, frames):
        outputs = torch.zeros(len(frames), 5, 4)
        for position in range(len(frames)):
            outputs[position] = self.last(self.layer(frames[position]))
        return outputs


def of_classes(output, target):
    return functional.nll_loss(output[1:].reshape(-1, 4), torch.arange(25) % 4)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (lambda x: x.softmax(-1), ["error"]),
        (lambda x: x, ["error"]),
        (lambda x: x.log_softmax(-1), []),
        (lambda x: x - x.logsumexp(-1, keepdim=True), []),
    ],
    ids=["softmax", "logits", "logarithms", "by hand"],
)
def test_what_is_written_step_by_step_is_followed(findings_of, last, expected):
    frames = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(4))
    assert severities(findings_of(StepByStep(last), (frames, CLASSES), of_classes)) == expected


class InPlace(nn.Module):
    """Normalises a part of the scores where they stand."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, frames):
        scores = self.layer(frames) * 1.0
        part = scores[1:]
        part -= part.logsumexp(-1, keepdim=True)
        return scores


def test_what_is_written_over_is_not_what_was_there(findings_of):
    frames = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(4))
    assert not severities(findings_of(InPlace(), (frames, CLASSES), of_classes))


@pytest.mark.parametrize(("dimension", "expected"), [(1, ["error"]), (2, [])])
def test_a_constant_before_the_logarithm_hides_no_dimension(findings_of, dimension, expected):
    def loss(output, target):
        logarithms = (output.softmax(dimension) + 1e-9).log()
        return functional.nll_loss(logarithms.view(-1, 4), torch.arange(30) % 4)

    frames = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(4))
    assert severities(findings_of(network(), (frames, CLASSES), loss)) == expected
