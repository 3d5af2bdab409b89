"""GS707: examples that meet by mistake, and examples that are meant to."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push
from tests.rules.watching import findings_of as watched

G = torch.Generator().manual_seed(1)
WORDS = torch.randn(10, 7, 6, generator=G)
IMAGES = torch.randn(10, 3, 8, 8, generator=G)
CLASSES = torch.arange(10) % 3


def told(findings):
    return [finding.severity for finding in findings if finding.rule == "GS707"]


class Reader(nn.Module):
    """Reads sequences `[batch, time, 6]`; how is up to `read`."""

    def __init__(self, read, **layers):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(6, 3)
        self.read = read
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        return self.head(self.read(self, x))


def viewed(model, x):
    states, _ = model.rnn(x.transpose(0, 1))
    return states.reshape(len(x), x.shape[1], -1).mean(1)


def viewed_channels(model, x):
    states, _ = model.rnn(x.transpose(0, 1))
    return states.contiguous().view(len(x), 6, x.shape[1]).mean(2)


def softmax_over_examples(model, x):
    return (model.score(x).softmax(0) * x).sum(1)


def normalised_over_examples(model, x):
    return functional.normalize(x.mean(1), dim=0)


def time_first(model, x):
    return model.rnn(x)[0][:, -1]


def attention_over_examples(model, x):
    return model.attention(x, x, x)[0].mean(1)


SICK = {
    "view": lambda: Reader(viewed, rnn=nn.GRU(6, 6)),
    "view of channels": lambda: Reader(viewed_channels, rnn=nn.GRU(6, 6)),
    "softmax": lambda: Reader(softmax_over_examples, score=nn.Linear(6, 1)),
    "normalize": lambda: Reader(normalised_over_examples),
    "lstm": lambda: Reader(time_first, rnn=nn.LSTM(6, 6)),
    "attention": lambda: Reader(attention_over_examples, attention=nn.MultiheadAttention(6, 2)),
}


@pytest.mark.parametrize("build", some_on_push(SICK.values(), 3), ids=SICK)
def test_examples_that_meet_by_mistake_are_an_error(findings_of, build):
    findings = findings_of(build(), (WORDS, CLASSES), functional.cross_entropy)
    assert told(findings) == ["error"]


def test_a_view_in_the_loss_is_an_error(findings_of):
    def loss(output, target):
        logits = output.view(7, 10, 3)
        return functional.cross_entropy(logits.mean(0), target)

    model = nn.Linear(6, 3)
    assert told(findings_of(model, (WORDS, CLASSES), loss)) == ["error"]


def test_two_dimensions_that_change_places_are_an_error_of_any_size(findings_of):
    def loss(output, target):
        return functional.cross_entropy(output.view(20, 10, 3).mean(0), target)

    words = torch.randn(10, 20, 6)
    assert told(findings_of(nn.Linear(6, 3), (words, CLASSES), loss)) == ["error"]


def permuted(model, x):
    return model.rnn(x.transpose(0, 1))[0].permute(1, 0, 2).mean(1)


def heads(model, x):
    batch, time, width = x.shape
    x = x.view(batch, time, 2, 3).transpose(1, 2).reshape(batch * 2, time, 3)
    weight = (x @ x.transpose(1, 2)).softmax(-1)
    x = (weight @ x).view(batch, 2, time, 3).transpose(1, 2).reshape(batch, time, width)
    return x.reshape(-1, width).view(batch, time, width).mean(1)


def pairs(model, x):
    return x.view(5, 2, 7, 6).flip(2).reshape(10, 7, 6).amax(1)


def stacked_views(model, x):
    both = torch.cat([x, x.flip(1)])
    return both.view(2, 10, 7, 6).mean((0, 2))


def batch_first(model, x):
    return model.rnn(x)[0][:, -1]


def one_query(model, x):
    pooled = x.mean(1, keepdim=True)
    return pooled.reshape(1, len(x), -1)[0]


def normalised_features(model, x):
    return functional.normalize(x.mean(1), dim=-1)


HEALTHY = {
    "permute": lambda: Reader(permuted, rnn=nn.GRU(6, 6)),
    "heads": lambda: Reader(heads),
    "pairs": lambda: Reader(pairs),
    "views": lambda: Reader(stacked_views),
    "batch first": lambda: Reader(batch_first, rnn=nn.LSTM(6, 6, batch_first=True)),
    "normalize": lambda: Reader(normalised_features),
    "a dimension of size 1": lambda: Reader(one_query),
}


@pytest.mark.parametrize("build", some_on_push(HEALTHY.values(), 4), ids=HEALTHY)
def test_examples_that_never_meet_are_fine(findings_of, build):
    assert not told(findings_of(build(), (WORDS, CLASSES), functional.cross_entropy))


def batch_statistics(model, x):
    x = x.mean(1)
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def each_with_all(model, x):
    x = x.mean(1)
    return (x @ x.T / 6**0.5).softmax(-1) @ x


def shuffled(model, x):
    return (x + 0.1 * x.roll(1, 0)).mean(1)


def batch_normalised(model, x):
    return model.norm(x.mean(1))


def instances_of_one_bag(model, x):
    weight = model.score(x.mean(1)).softmax(0)
    return (weight * x.mean(1)).sum(0, keepdim=True)


MEANT = {
    "statistics": lambda: Reader(batch_statistics),
    "similarity": lambda: Reader(each_with_all),
    "roll": lambda: Reader(shuffled),
    "batch norm": lambda: Reader(batch_normalised, norm=nn.BatchNorm1d(6)),
}


@pytest.mark.parametrize("build", some_on_push(MEANT.values(), 2), ids=MEANT)
def test_examples_that_are_meant_to_meet_are_fine(findings_of, build):
    assert not told(findings_of(build(), (WORDS, CLASSES), functional.cross_entropy))


def test_the_instances_of_one_bag_are_fine(findings_of):
    model = Reader(instances_of_one_bag, score=nn.Linear(6, 1))
    goal = torch.zeros(1, dtype=torch.long)

    def loss(output, batch):
        return functional.cross_entropy(output, goal)

    assert not told(findings_of(model, WORDS, loss))


def test_a_sequence_without_a_batch_is_near_but_fine(findings_of):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    steps, tags = torch.randn(9, 4, 6), torch.arange(36).view(9, 4) % 3

    def loss(output, target):
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    assert not told(findings_of(Tagger(), (steps, tags), loss))
    assert not told(findings_of(Tagger(), (steps[:, 0], tags[:, 0]), functional.cross_entropy))


def test_images_and_patches_are_fine(findings_of):
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.head = nn.Linear(48, 6), nn.Linear(6, 3)

        def forward(self, x):
            x = x.view(len(x), 3, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 48)
            return self.head(self.linear(x).view(-1, 4, 6).mean(1))

    assert not told(findings_of(Patches(), (IMAGES, CLASSES), functional.cross_entropy))


def per_word(dimension):
    """Return a loss of log-probabilities that sum to one over a dimension of `[10, 7, 3]`."""

    def loss(output, target):
        scores = functional.log_softmax(output, dim=dimension).flatten(0, 1)
        return functional.nll_loss(scores, target.flatten())

    return loss


@pytest.mark.parametrize(("dimension", "expected"), [(1, ["error"]), (2, []), (-1, [])])
def test_log_probabilities_over_time_are_told_from_those_over_classes(
    findings_of, dimension, expected
):
    batch = WORDS, torch.arange(70).reshape(10, 7) % 3
    assert told(findings_of(Reader(lambda _, x: x), batch, per_word(dimension))) == expected


def test_a_choice_among_some_of_the_classes_is_not_found(findings_of):
    def loss(output, target):
        return functional.nll_loss(
            functional.log_softmax(output, dim=-1)[:, :2], target.clamp(max=1)
        )

    assert told(findings_of(nn.Linear(6, 3), (WORDS[:, 0], CLASSES), loss)) == []


class Heads(nn.Module):
    """Attention over `[batch, time, 12]` with three heads; how they are split is up to `split`."""

    def __init__(self, split, join):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.out, self.head = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 3)
        self.split, self.join = split, join

    def forward(self, x):
        heads = self.split(self.into(x))
        weight = (heads @ heads.transpose(-1, -2) / 2).softmax(-1)
        return self.head(self.out(self.join(weight @ heads)).mean(1))


def split(x):
    return x.view(*x.shape[:2], 3, 4).transpose(1, 2)


def split_without_transpose(x):
    return x.view(len(x), 3, x.shape[1], 4)


def join(x):
    return x.transpose(1, 2).reshape(len(x), x.shape[2], -1)


def join_without_transpose(x):
    return x.reshape(len(x), x.shape[2], -1)


def join_by_flattening(x):
    return x.permute(0, 2, 1, 3).contiguous().flatten(2)


def apart(x):
    return x.unflatten(-1, (3, 4)).movedim(2, 1)


HEADS = {
    "split and joined": (split, join, 0),
    "otherwise": (apart, join_by_flattening, 0),
    "not transposed to be split": (split_without_transpose, join, 1),
    "not transposed to be joined": (split, join_without_transpose, 1),
    "neither": (split_without_transpose, join_without_transpose, 2),
}


@pytest.mark.parametrize(("split", "join", "count"), HEADS.values(), ids=HEADS)
def test_heads_that_are_not_transposed_are_an_error(findings_of, split, join, count):
    found = findings_of(Heads(split, join), (WORDS, CLASSES), functional.cross_entropy)
    assert told(found) == ["error"] * count
    messages = [one.message for one in found if one.rule == "GS707"]
    assert all("[10, 3, 7, 4]" in one and "do not exchange" in one for one in messages)


def test_as_many_heads_as_words_may_have_been_transposed(findings_of):
    model = Heads(split_without_transpose, join_without_transpose)
    assert not told(findings_of(model, (WORDS[:, :3], CLASSES), functional.cross_entropy))


class Transcriber(nn.Module):
    """Log-probabilities `[time, batch, letters]` of `[batch, time, 6]`, or of its columns."""

    def __init__(self, arrange, columns=None):
        super().__init__()
        self.rnn, self.head, self.arrange = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 5), arrange
        self.image, self.columns = nn.Conv1d(6, 6, 1), columns

    def forward(self, x):
        if self.columns is None:
            return self.arrange(self.head(self.rnn(x)[0]).log_softmax(-1))
        columns = self.columns(self.image(x.transpose(1, 2)))
        return self.head(self.rnn(columns.transpose(0, 1))[0]).log_softmax(-1).transpose(0, 1)


@pytest.mark.parametrize(
    ("arrange", "columns", "expected"),
    [
        (lambda x: x.transpose(0, 1), None, []),
        (lambda x: x.permute(1, 0, 2).contiguous(), None, []),
        (lambda x: x.reshape(20, 4, 5), None, ["error"]),
        (lambda x: x.reshape(20, 4, 5).flip(0), None, ["error"]),
        (None, lambda x: x.reshape(20, 4, 6), ["error"]),
        (None, lambda x: x.permute(2, 0, 1).reshape(20, 4, 6), []),
    ],
)
def test_a_script_that_exchanges_time_and_batch_by_reshape(arrange, columns, expected, tmp_path):
    def loop():
        torch.manual_seed(0)
        model = Transcriber(arrange, columns)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(6):
            letters = torch.randint(1, 5, (4, 6))
            lengths = torch.full((4,), 20), torch.full((4,), 6)
            loss = functional.ctc_loss(model(torch.randn(4, 20, 6)), letters, *lengths)
            adam.zero_grad()
            loss.backward()
            adam.step()

    assert told(watched(loop, tmp_path)) == expected


def shifted(x):
    """Move the scores of `[time, keys, …]` of relative positions, as Transformer-XL does."""
    padded = functional.pad(x, (0, 0, 1, 0))
    return padded.view(x.size(1) + 1, x.size(0), x.size(2))[1:].view_as(x)


def shifted_without_padding(x):
    """Move them as XLNet does, whose scores are long enough."""
    cut = x.reshape(x.size(1), x.size(0), x.size(2))[1:]
    return cut.reshape(x.size(0), x.size(1) - 1, x.size(2))


def exchanged_after_padding(x):
    return functional.pad(x, (0, 0, 1, 0)).view(x.size(1) + 1, x.size(0), x.size(2))[1:]


@pytest.mark.parametrize(
    ("move", "expected"),
    [(shifted, []), (shifted_without_padding, []), (exchanged_after_padding, ["error"])],
)
def test_scores_of_relative_positions_that_two_views_shift(move, expected, tmp_path):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(6, 2)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            weights = move(model(torch.randn(5, 7, 6))).softmax(1)
            loss = (weights * torch.randn(weights.shape)).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()

    assert told(watched(loop, tmp_path)) == expected


@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        (lambda x: x.transpose(1, 2), []),
        (lambda x: x.reshape(10, 6, 7), ["warning"]),
        (lambda x: x.unflatten(2, (2, 3)).reshape(10, 2, 7, 3).mT.flatten(1, 2), ["warning"]),
        (lambda x: x[:, :6].reshape(10, 6, 6), []),  # as many of both: nothing was exchanged
        (lambda x: x.mean(1, keepdim=True).reshape(10, 6, 1).expand(-1, -1, 7), []),
        (lambda x: x.reshape(10, 2, 21).mean(1, keepdim=True).expand(-1, 6, -1), []),
    ],
)
def test_channels_that_a_view_puts_before_time(findings_of, arrange, expected):
    def read(model, x):
        return model.conv(arrange(model.into(x))).mean(2)

    model = Reader(read, into=nn.Linear(6, 6), conv=nn.Conv1d(6, 6, 3))
    assert told(findings_of(model, (WORDS, CLASSES), functional.cross_entropy)) == expected


class Nodes(nn.Module):
    """Scores of the nodes of a graph, of heads that `split` takes from `[nodes, 3 * 4]`."""

    def __init__(self, split, dimension=1):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.out, self.split = nn.Linear(6, 12), nn.Linear(4, 5), split
        self.dimension = dimension

    def forward(self, x):
        heads = self.split(self.into(x))
        return self.out(torch.tanh(heads).mean(0)).log_softmax(self.dimension)


def of_some_nodes(model, nodes=16):
    """Return a loop that trains a model with the labels of some nodes."""

    def loop():
        torch.manual_seed(0)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        features, labels = torch.randn(nodes, 6), torch.arange(nodes) % 5
        known = torch.randperm(nodes)[:9]
        for _ in range(4):
            loss = functional.nll_loss(model(features)[known], labels[known])
            adam.zero_grad()
            loss.backward()
            adam.step()

    return loop


@pytest.mark.parametrize(
    ("split", "nodes", "expected"),
    [
        (lambda x: x.view(3, -1, 4), 16, ["error"]),
        (lambda x: x.view(-1, 3, 4).permute(1, 0, 2), 16, []),
        (lambda x: x.view(3, -1, 4), 15, []),  # may be three groups of nodes
    ],
)
def test_heads_that_a_view_puts_before_the_nodes_of_a_graph(split, nodes, expected, tmp_path):
    assert told(watched(of_some_nodes(Nodes(split), nodes), tmp_path)) == expected


@pytest.mark.parametrize(("dimension", "expected"), [(0, ["error"]), (1, []), (-1, [])])
def test_log_probabilities_over_the_nodes_of_which_some_are_selected(dimension, expected, tmp_path):
    model = Nodes(lambda x: x.view(-1, 3, 4).permute(1, 0, 2), dimension)
    assert told(watched(of_some_nodes(model), tmp_path)) == expected


class Segmenter(nn.Module):
    """Log-probabilities `[batch * points, classes]` of scores `[batch, classes, points]`."""

    def __init__(self, arrange):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.arrange = nn.Conv1d(6, 3, 1), arrange

    def forward(self, x):
        scores = self.layer(x.transpose(1, 2))
        return self.arrange(scores).log_softmax(-1)


@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        (lambda x: x.reshape(-1, 3), ["error"]),
        (lambda x: x.view(len(x), -1, 3), ["error"]),
        (lambda x: x.transpose(1, 2).reshape(-1, 3), []),
        (lambda x: x[..., :3].reshape(-1, 3), []),  # as many points as classes: not known
    ],
)
def test_classes_that_are_joined_before_they_are_last(findings_of, arrange, expected):
    def loss(output, target):
        output = output.flatten(0, -2)
        return functional.nll_loss(output, target.flatten()[: len(output)])

    batch = WORDS, torch.arange(70).reshape(10, 7) % 3
    assert told(findings_of(Segmenter(arrange), batch, loss)) == expected


def overlap(dimension, *, of_scores=lambda scores: scores):
    """Return a loss of images that adds an overlap of probabilities to a cross-entropy."""

    def loss(scores, target):
        probabilities = of_scores(scores).softmax(dimension)
        wanted = functional.one_hot(target, 3).movedim(-1, 1)
        shared = (probabilities * wanted).sum() / (probabilities.sum() + wanted.sum())
        return functional.cross_entropy(scores, target) - shared

    return loss


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (overlap(0), ["error"]),
        (overlap(-1), ["error"]),
        (overlap(1), []),
        # Another tensor than the loss takes: of the last layer's sums over the image.
        (overlap(0, of_scores=lambda x: x + x.mean((2, 3), keepdim=True)), []),
    ],
)
def test_probabilities_of_an_image_over_another_dimension_than_the_classes(
    loss, expected, tmp_path
):
    """The batch has as many images as classes."""

    def loop():
        torch.manual_seed(0)
        model = nn.Conv2d(2, 3, 3, padding=1)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            adam.zero_grad()
            loss(model(torch.randn(3, 2, 6, 5)), torch.randint(0, 3, (3, 6, 5))).backward()
            adam.step()

    assert told(watched(loop, tmp_path)) == expected


def test_similarities_of_two_views_are_read_along_both_dimensions(tmp_path):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(6, 4)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            adam.zero_grad()
            similar = model(torch.randn(9, 6)) @ model(torch.randn(9, 6)).T
            matched = similar.softmax(0).diagonal().log().mean()
            (functional.cross_entropy(similar, torch.arange(9)) - matched).backward()
            adam.step()

    assert told(watched(loop, tmp_path)) == []


def picked(dimension, read):
    def loss(scores):
        return -read(scores.softmax(dimension), torch.arange(len(scores)) % scores.shape[1])

    return loss


def by_index(shares, classes):
    return shares[torch.arange(len(classes)), classes].add(1e-9).log().mean()


def by_gather(shares, classes):
    return shares.log().gather(1, classes[:, None]).mean()


def weighed(dimension, columns=1):
    def loss(scores):
        targets = torch.linspace(0, 1, scores.numel()).view(scores.shape).softmax(1)
        return (-targets * scores.log_softmax(dimension)).sum(columns).mean()

    return loss


def of_pairs(scores):
    return weighed(0)(
        scores @ torch.ones(5, 4).cumsum(1).requires_grad_().softmax(0)[: len(scores)]
    )


@pytest.mark.parametrize(
    ("loss", "width", "expected"),
    [
        (weighed(0), 4, ["error"]),
        (weighed(1), 4, []),
        # The sum tells what is a class: here the rows are.
        (weighed(0, columns=0), 4, []),
        (weighed(0), 9, []),
        (of_pairs, 5, []),
        (picked(0, by_index), 4, ["error"]),
        (picked(0, by_gather), 4, ["error"]),
        (picked(1, by_index), 4, []),
        # As many classes as examples: similarities are read along both dimensions.
        (picked(0, by_index), 9, []),
        (lambda scores: -(scores.softmax(0) * scores)[torch.arange(9)].mean(), 4, []),
    ],
)
def test_rows_from_each_of_which_a_probability_is_picked_are_examples(
    loss, width, expected, tmp_path
):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(6, width)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            adam.zero_grad()
            loss(model(torch.randn(9, 6))).backward()
            adam.step()

    assert told(watched(loop, tmp_path)) == expected


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda model, x, y: functional.cross_entropy(model(x), y), ["warning"]),
        (lambda model, x, y: functional.cross_entropy(model(x).transpose(1, 2), y), []),
        (lambda model, x, y: functional.cross_entropy(model(x).permute(0, 2, 1), y), []),
        (
            lambda model, x, y: functional.cross_entropy(model(x)[:, :4].transpose(1, 2), y[:, :4]),
            [],
        ),
        (lambda model, x, y: functional.cross_entropy(model(x).flatten(0, 1), y.flatten()), []),
        # Channels are the classes, and each sees its own values along time.
        (lambda model, x, y: functional.cross_entropy(model(x).tanh() + x.mean(), y), []),
    ],
)
def test_as_many_time_steps_as_classes_do_not_hide_the_dimension(use, expected, tmp_path):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(5, 5)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            adam.zero_grad()
            use(model, torch.randn(9, 5, 5), torch.randint(0, 5, (9, 5))).backward()
            adam.step()

    assert told(watched(loop, tmp_path)) == expected


def test_heads_as_wide_as_the_batch_is_long_are_fine():
    """torch's attention reads [length, 8, 16] as [length, 8 * 2, 8] with two heads."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    report = gradscope.inspect(layer, torch.randn(8, 6, 16), lambda out: out.square().mean())
    assert not [one for one in report.findings if one.rule == "GS707"]
