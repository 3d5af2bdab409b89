"""GS204 on normalisations whose groups have a single element, and on healthy ones."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gradscope
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

GENERATOR = torch.Generator().manual_seed(3)
X, Y = torch.randn(64, 8, generator=GENERATOR), torch.randint(4, (64,), generator=GENERATOR)


class Normed(nn.Module):
    """A hidden layer of 16 features, normalised as maps of `size` pixels."""

    def __init__(self, norm, size=1):
        super().__init__()
        self.size, self.norm = size, norm
        self.hidden, self.out = nn.Linear(8, 16 * size), nn.Linear(16 * size, 4)

    def forward(self, x):
        maps = self.hidden(x).unflatten(1, (16, self.size))
        return self.out(self.norm(maps).relu().flatten(1))


def told(norm, size=1):
    torch.manual_seed(0)
    model = Normed(norm, size)
    report = gradscope.inspect(model, X, lambda out: cross_entropy(out, Y))
    return [one for one in report.findings if one.rule == "GS204"]


@pytest.mark.parametrize("norm", [nn.GroupNorm(16, 16), nn.LayerNorm(1)])
def test_a_normalisation_of_single_elements_is_an_error(norm):
    # The independent oracle: the result is the bias, whatever the input.
    results = [norm(torch.randn(5, 16, 1)).detach() for _ in range(2)]
    torch.testing.assert_close(*results, atol=1e-3, rtol=0)
    found = only(told(norm), "GS204")
    assert found.severity == "error"
    assert "each element is normalised by itself" in found.message


@pytest.mark.parametrize(
    ("norm", "size"),
    [
        (nn.GroupNorm(16, 16), 4),
        (nn.GroupNorm(8, 16), 1),
        (nn.GroupNorm(1, 16), 1),
        (nn.LayerNorm((16, 1)), 1),
        (nn.LayerNorm(4), 4),
    ],
)
def test_a_normalisation_of_several_elements_is_fine(norm, size):
    assert not told(norm, size)


SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
norm = nn.GroupNorm(GROUPS, 16)
model = nn.Sequential(nn.Linear(8, 16), norm, nn.ReLU(), nn.Linear(16, 4))  # here
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(12):
    x = torch.randn(32, 8)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("groups", "count"), [("16", 1), ("4", 0)])
def test_a_script_is_told_at_the_layer(tmp_path, groups, count):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("GROUPS", groups))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS204"]
    assert len(found) == count
    assert {one.location.line for one in found} <= marked_lines(script, "# here")


POOL = """
import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.score, self.out = nn.Embedding(40, 16), nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, tokens):
        states = self.embed(tokens)
        weight = torch.softmax(self.score(states), dim=DIM)  # here
        return self.out((weight * states).mean(1))


torch.manual_seed(0)
model = Pool()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(12):
    x = torch.randint(40, (32, 12))
    loss = nn.functional.cross_entropy(model(x), x[:, 0] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("dim", "count"), [("-1", 1), ("1", 0)])
def test_weights_of_a_mean_that_are_always_one_are_an_error(tmp_path, dim, count):
    script = tmp_path / "train.py"
    script.write_text(POOL.replace("DIM", dim))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS204"]
    assert [one.severity for one in found] == ["error"] * count
    assert {one.location.line for one in found} <= marked_lines(script, "# here")


QUERY = POOL.replace(
    "nn.Embedding(40, 16), nn.Linear(16, 1), nn.Linear(16, 4)",
    "nn.Embedding(4000, 16), nn.Parameter(torch.randn(HEADS, 16)), nn.Linear(HEADS * 16, 4)",
).replace(
    """        weight = torch.softmax(self.score(states), dim=DIM)  # here
        return self.out((weight * states).mean(1))
""",
    """        score = torch.einsum("btd,hd->bth", states, self.score)
        weight = score.masked_fill((tokens == 0)[..., None], -1e4).softmax(DIM)  # here
        return self.out(torch.einsum("bth,btd->bhd", weight, states).flatten(1))
""",
)


@pytest.mark.parametrize(
    ("heads", "dim", "level"),
    [("1", "-1", ["warning"]), ("1", "1", []), ("2", "-1", [])],
    ids=["one head", "over the positions", "several heads"],
)
def test_weights_by_a_single_query_that_are_always_one_are_a_warning(tmp_path, heads, dim, level):
    script = tmp_path / "train.py"
    script.write_text(QUERY.replace("HEADS", heads).replace("DIM", dim))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS204"]
    assert [one.severity for one in found] == level
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
