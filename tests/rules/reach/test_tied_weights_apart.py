import copy

import pytest
import torch
from torch import nn

import gradscope
from tests.nightly import some_on_push
from tests.rules.inspecting import only
from tests.rules.watching import findings_of


class Language(nn.Module):
    """An embedding and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(12, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 12, bias=False)

    def forward(self, tokens):
        return self.head(torch.tanh(self.body(self.embedding(tokens))))


def found(model):
    tokens = torch.arange(12)
    report = gradscope.inspect(model, (tokens, tokens.roll(1)), "cross-entropy")
    return [finding for finding in report.findings if finding.rule == "GS213"]


def share(model):
    model.head.weight.data = model.embedding.weight.data


def copy_values(model):
    model.head.weight.data.copy_(model.embedding.weight)


def share_transposed(model):
    model.head = nn.Linear(6, 6)
    model.head.weight.data = model.body.weight.data.t()


@pytest.mark.parametrize("tie", [share, copy_values])
def test_tie_that_is_none_is_found_at_its_line(tie):
    model = Language()
    tie(model)
    (finding,) = found(model)
    assert finding.severity == "warning"
    assert finding.parameters == ("embedding.weight", "head.weight")
    first, second = (model.embedding.weight, model.head.weight)
    assert dict(finding.evidence)["alike"] == ("storage" if tie is share else "values")
    assert first is not second


def test_line_is_that_of_the_assignment(inspect_file):
    text = (
        "import torch\nfrom torch import nn\n"
        "class Model(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)\n"
        "        self.out.weight.data = self.table.weight.data\n"
        "    def forward(self, x):\n"
        "        return self.out(self.table(x))\n"
        "model = Model()\nbatch = (torch.arange(9), torch.arange(9))\n"
        "criterion = nn.CrossEntropyLoss()\n"
    )
    finding = only(inspect_file(text).findings, "GS213")
    assert finding.location.source == "self.out.weight.data = self.table.weight.data"


def test_transposed_views_share_memory_too():
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(6, 3), nn.Linear(3, 6)
            self.decoder.weight.data = self.encoder.weight.data.t()

        def forward(self, x):
            return self.decoder(torch.tanh(self.encoder(x)))

    x = torch.randn(8, 6)
    assert only(gradscope.inspect(Autoencoder(), (x, x), "mse").findings, "GS213")


def tie(model):
    model.head.weight = model.embedding.weight


def freeze(model):
    share(model)
    model.embedding.requires_grad_(False)


def fill(model):
    nn.init.constant_(model.head.weight, 0.1)
    nn.init.constant_(model.embedding.weight, 0.1)


def clone_layers(model):
    model.body = nn.Sequential(model.body, copy.deepcopy(model.body))


def nearly(model):
    copy_values(model)
    model.head.weight.data[-1, -1] += 1e-3


@pytest.mark.parametrize(
    "change", some_on_push([tie, freeze, fill, clone_layers, nearly, lambda model: None], {0, 3})
)
def test_healthy_models_are_left_alone(change):
    model = Language()
    change(model)
    assert found(model) == []


class Siamese(nn.Module):
    """Two branches, and what is made of what they return."""

    def __init__(self, right, join) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.right = right(self.left)
        self.out = nn.Linear(8, 4)
        self.join = join

    def forward(self, pair):
        return self.join(self, self.left(pair[:, 0]), self.right(pair[:, 1]))


def distance(model, left, right):
    return nn.functional.pairwise_distance(left, right)


def joined(model, left, right):
    return model.out(torch.cat([left, right], 1)).sum(1)


def another(left):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def same(left):
    return left


def frozen(left):
    return copy.deepcopy(left).requires_grad_(False)


@pytest.mark.parametrize(
    ("right", "join", "fires"),
    some_on_push(
        [
            (copy.deepcopy, distance, True),
            (copy.deepcopy, joined, False),
            (another, distance, False),
            (same, distance, False),
            (frozen, distance, False),
        ],
        {0, 1, 3},
    ),
)
def test_copied_branches_of_a_distance_are_a_warning(right, join, fires):
    torch.manual_seed(0)
    model = Siamese(right, join)
    report = gradscope.inspect(model, (torch.randn(8, 2, 6), torch.rand(8)), "mse")
    findings = [one for one in report.findings if one.rule == "GS213"]
    assert [one.severity for one in findings] == (["warning"] if fires else [])
    if fires:
        assert findings[0].modules == ("left", "right")
        assert len(findings[0].parameters) == 8


@pytest.mark.parametrize(("held", "fires"), [(("left", "right"), True), (("left",), False)])
def test_a_copy_that_no_optimizer_holds_stays_as_a_reference(held, fires):
    torch.manual_seed(0)
    model = Siamese(copy.deepcopy, distance)
    parameters = [p for name in held for p in getattr(model, name).parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    batch = (torch.randn(8, 2, 6), torch.rand(8))
    report = gradscope.inspect(model, batch, "mse", optimizer=optimizer)
    assert ("GS213" in [one.rule for one in report.findings]) is fires


def replace_embedding(model):
    model.head.weight = model.embedding.weight
    model.embedding = nn.Embedding(14, 6)


def replace_and_tie(model):
    replace_embedding(model)
    model.head.weight = model.embedding.weight


def replace_head(model):
    model.head.weight = model.embedding.weight
    model.head = nn.Linear(6, 12)


def untie(model):
    model.head.weight = model.embedding.weight
    model.head.weight = nn.Parameter(torch.randn(12, 6))


@pytest.mark.parametrize("change", [replace_embedding, replace_and_tie, replace_head, untie])
def test_replaced_embedding_leaves_the_head_tied_to_the_one_before(tmp_path, change):
    def train():
        model = Language()
        change(model)
        tokens = torch.arange(12)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            logits = model(tokens)[:, :12]
            nn.functional.cross_entropy(logits, tokens.roll(1)).backward()
            optimizer.step()

    told = [one for one in findings_of(train, tmp_path) if one.rule == "GS213"]
    assert len(told) == (change is replace_embedding)
    if told:
        assert told[0].severity == "warning"
        assert told[0].location.source == "model.embedding = nn.Embedding(14, 6)"


def share_both(model):
    other = nn.Linear(6, 6)
    for own, taken in zip(model.body.parameters(), other.parameters(), strict=True):
        taken.data = own.data
    model.after = other


def share_with_two(model):
    model.after = nn.Linear(6, 6, bias=False)
    layers = ((model.body, model.after), (model.embedding, model.head))
    for own, taken in ((one.weight, other.weight) for one, other in layers):
        taken.data = own.data


@pytest.mark.parametrize(("share_all", "count"), [(share_both, 1), (share_with_two, 2)])
def test_weights_of_one_layer_that_share_memory_are_one_finding(tmp_path, share_all, count):
    class Twice(Language):
        def forward(self, tokens):
            return self.head(self.after(torch.tanh(self.body(self.embedding(tokens)))))

    def train():
        model, tokens = Twice(), torch.arange(12)
        share_all(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens), tokens.roll(1)).backward()
            optimizer.step()

    told = [one for one in findings_of(train, tmp_path) if one.rule == "GS213"]
    assert len(told) == count
    assert sum(len(one.parameters) for one in told) == 4
    assert ("1 further pair" in told[0].message) == (count == 1)
