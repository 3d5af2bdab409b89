"""Files that hold only a model: its arguments and inputs are guessed."""

import random

import numpy
import pytest
import torch
from torch import nn

from gradscope.errors import GuessNeededError
from gradscope.target.discovery.guessed_inputs import guess_inputs
from tests.nightly import some_on_push

MODELS = {
    "vectors": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(20, 3)
            def forward(self, x): return self.l(x)
        """,
        "--input 8,20",
    ),
    "pictures of one size": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.c = nn.Conv2d(3, 4, 3, padding=1)
                self.l = nn.Linear(4 * 64 * 64, 10)
            def forward(self, x): return self.l(self.c(x).flatten(1))
        """,
        "--input 4,3,64,64",
    ),
    "tokens": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.l = nn.Embedding(50, 8), nn.LSTM(8, 8, batch_first=True)
            def forward(self, tokens, state=None): return self.l(self.e(tokens), state)
        """,
        "--input int64[0,50]:4,16",
    ),
    "two embeddings": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.u, self.i = nn.Embedding(100, 4), nn.Embedding(30, 4)
            def forward(self, user, item): return (self.u(user) * self.i(item)).sum(-1)
        """,
        "--input user=int64[0,100]:4,16 --input item=int64[0,30]:4,16",
    ),
    "a dictionary": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.c, self.e = nn.Conv2d(3, 4, 3), nn.Embedding(30, 4)
            def forward(self, batch):
                batch["seen"] = True
                return self.c(batch["image"]).mean((2, 3)) + self.e(batch["tokens"]).mean(1)
        """,
        "--input image=4,3,32,32 --input tokens=int64[0,30]:4,16",
    ),
    "a state of the model's method": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.i, self.o = nn.Linear(7 + 5, 5), nn.Linear(7 + 5, 3)
            def forward(self, x, hidden):
                both = torch.cat((x, hidden), 1)
                return self.o(both), self.i(both).tanh()
            def initHidden(self): return torch.zeros(1, 5)
        """,
        "--input x=1,7, hidden from model.initHidden()",
    ),
    "a state of an LSTM": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.r = nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
            def forward(self, x, state): return self.r(x, state)
        """,
        "--input x=4,16,6, state from zeros for h and c",
    ),
    "a graph": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(12, 3)
            def forward(self, x, edge_index):
                source, sink = edge_index
                h = self.l(x)
                return torch.zeros_like(h).index_add(0, sink, h[source])
        """,
        "--input x=8,12 --input edge_index=int64[0,8]:2,24",
    ),
    "noise at a time": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.c = nn.Embedding(100, 8), nn.Conv2d(3, 8, 3, padding=1)
                self.o = nn.Conv2d(8, 3, 1)
            def forward(self, x, t): return self.o(self.c(x) + self.e(t)[:, :, None, None])
        """,
        "--input x=4,3,32,32 --input t=int64[0,100]:4",
    ),
    "an unrolled cell": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.c = nn.GRUCell(5, 6)
            def forward(self, x):
                h = x.new_zeros(len(x), 6)
                for step in x.unbind(1): h = self.c(step, h)
                return h
        """,
        "--input 4,16,5",
    ),
    "a mask": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.l = nn.Embedding(20, 4), nn.Linear(4, 2)
            def forward(self, ids, mask):
                return self.l((self.e(ids) * mask.unsqueeze(-1)).sum(1))
        """,
        "--input ids=int64[0,20]:4,16 --input mask=bool:4,16",
    ),
    "attention": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            def forward(self, x): return self.a(x).mean(1)
        """,
        "--input 4,16,8",
    ),
    "weights without a layer": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(7, 3))
            def forward(self, x): return x @ self.w
        """,
        "--input 8,7",
    ),
}


@pytest.mark.parametrize("name", some_on_push(MODELS, 4))
def test_inputs_are_guessed_and_said(workplace, name):
    text, options = MODELS[name]
    target = workplace.load(text)
    assert target.guessed == ("batch",)
    assert any(note.startswith(f"guessed the batch: {options}, from ") for note in target.notes)
    outcome = target.forward()
    outcome.loss.backward()
    assert outcome.loss.isfinite()


def test_options_of_the_note_make_the_same_batch(workplace):
    text, options = MODELS["two embeddings"]
    guessed = workplace.load(text).batch
    given = workplace.load(text, inputs=tuple(options.split(" ")[1::2])).batch
    assert guessed.keys() == given.keys()
    assert all(torch.equal(guessed[name], given[name]) for name in given)


def test_a_guess_leaves_model_and_random_numbers_unchanged(workplace):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = 0
                self.l, self.n = nn.Linear(4, 4), nn.BatchNorm1d(4)
            def forward(self, x):
                self.calls += 1
                return F.dropout(self.n(self.l(x)))
        """
    guessed = workplace.load(text)
    after_guess = torch.get_rng_state()
    given = workplace.load(text, inputs=("8,4",))
    assert torch.equal(after_guess, torch.get_rng_state())
    assert guessed.model.calls == 0
    for one, other in zip(guessed.model.buffers(), given.model.buffers(), strict=True):
        assert torch.equal(one, other)


def test_a_guess_leaves_the_generators_of_python_and_numpy_unchanged():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x):
            return self.l(x) * random.random() * float(numpy.random.rand())

    before = random.getstate(), numpy.random.get_state()
    assert guess_inputs(Net(), seed=0) is not None
    assert random.getstate() == before[0]
    assert all(map(numpy.array_equal, numpy.random.get_state(), before[1]))


def test_method_for_a_state_leaves_model_and_random_numbers_unchanged(workplace):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls, self.r = 0, nn.GRU(4, 4, batch_first=True)
            def forward(self, x, hidden): return self.r(x, hidden)[0]
            def init_hidden(self, size):
                self.calls += 1
                return torch.randn(1, size, 4)
        """
    guessed = workplace.load(text)
    after_guess = torch.get_rng_state()
    workplace.load(text, inputs=("x=4,16,4", "hidden=1,4,4"))
    assert torch.equal(after_guess, torch.get_rng_state())
    assert guessed.model.calls == 0
    assert "hidden from model.init_hidden(4)" in " ".join(guessed.notes)


def test_arguments_of_the_class_are_guessed(workplace):
    target = workplace.load(
        """
        class Net(nn.Module):
            def __init__(self, in_channels, hidden: int, num_classes, dropout, bias: bool):
                super().__init__()
                self.c = nn.Conv2d(in_channels, hidden, 3, bias=bias)
                self.l = nn.Sequential(nn.Dropout(dropout), nn.LazyLinear(num_classes))
                self.l(self.c(torch.zeros(2, in_channels, 8, 8)).mean((2, 3)))
            def forward(self, x): return self.l(self.c(x).mean((2, 3)))
        """
    )
    assert target.guessed == ("arguments", "batch")
    call = "Net(in_channels=3, hidden=64, num_classes=10, dropout=0.1, bias=True)"
    assert f"guessed the arguments: {call}" in target.notes


def test_lazy_layers_take_their_shapes_from_the_batch(workplace):
    target = workplace.load(
        """
        def build_model():
            return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(3))
        def build_batch():
            return torch.randn(8, 6), torch.arange(8) % 3
        loss_fn = nn.CrossEntropyLoss()
        """
    )
    assert target.model[0].weight.shape == (4, 6)
    assert target.model.training and target.model[1].training
    assert torch.equal(target.model[1].running_mean, torch.zeros(4))
    assert any(note.startswith("lazy layers took their shapes") for note in target.notes)


def test_arguments_that_do_not_fit_ask_for_the_users(workplace):
    error = workplace.error(
        "class Net(nn.Module):\n    def __init__(self, heads): assert heads == 3\n"
    )
    assert error.what.startswith("Net(heads=4) failed with guessed arguments: AssertionError")
    assert error.help == "give yours, as in Net(heads=4)"


def test_model_that_accepts_no_guess_asks_for_a_batch(workplace):
    error = workplace.error(
        "class Net(nn.Linear):\n    def forward(self, x): assert len(x) == 5\nmodel = Net(2, 2)\n"
    )
    assert error.what == "no batch for Net.forward(self, x)"


def test_forward_that_ends_in_integers_gets_an_input_that_it_accepts(workplace):
    """So `inspect` shows the finding about `argmax()` in forward, not that a batch is missing."""
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(2 * 16 * 16, 3)
    def forward(self, x): return self.head(self.conv(x).flatten(1)).argmax(1)
model = Net()
"""
    error = workplace.error(text)
    assert error.what == "nothing in the model's output requires grad; it is int64[4]"
    assert workplace.error(text, allow_guesses=False).help == (
        "--input 4,1,16,16, or --allow-guesses"
    )


CELL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell({0}, 4)
    def forward(self, x):
        state = None
        for step in range(x.shape[1]): state = self.cell(x[:, {1}], state)
        return state[0]
"""


@pytest.mark.parametrize(
    ("size", "index", "options"),
    [(3, "step", "4,16,3"), (1, "step", "4,16,1"), (1, "step : step + 1", "8,16")],
)
def test_a_cell_gets_several_steps(workplace, size, index, options):
    target = workplace.load(CELL.format(size, index))
    assert any(note.startswith(f"guessed the batch: --input {options},") for note in target.notes)


def test_a_script_that_trains_is_said_beside_a_guessed_batch_alone(workplace):
    text = """
        class Net(nn.Linear):
            def __init__(self): super().__init__(2, 2)
        if __name__ == "__main__":
            Net()(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        """
    told = " ".join(workplace.load(text).notes)
    assert "trains as a script (line 8): gradscope run model.py measures" in told
    assert "trains" not in " ".join(workplace.load(text, inputs=("8,2",)).notes)


def test_classes_that_need_arguments_are_said_beside_the_one_that_needs_none(workplace):
    target = workplace.load(
        """
        class Encoder(nn.Linear):
            def __init__(self): super().__init__(2, 2)
        class Classifier(nn.Module):
            def __init__(self, encoder): super().__init__()
        """
    )
    assert target.notes[0].endswith(" without arguments; not Classifier(encoder)")


def test_check_refuses_guesses(workplace):
    text, _ = MODELS["vectors"]
    assert workplace.error(text, allow_guesses=False).what.startswith("no batch for Net")


ONLY_A_CLASS = """
class Net(nn.Module):
    def __init__(self, hidden=3, *, width=4):
        super().__init__()
        self.l = nn.Linear(width, hidden)
    def forward(self, x): return self.l(x)
"""


@pytest.mark.parametrize(
    ("text", "given", "missing"),
    [
        (ONLY_A_CLASS, {}, "no batch for Net"),
        (ONLY_A_CLASS.replace("=3", ""), {}, "found no model"),
        (ONLY_A_CLASS.replace("=3", ""), {"model": "Net"}, "Net(hidden) needs arguments"),
    ],
)
def test_a_refused_guess_says_how_to_allow_it(workplace, text, given, missing):
    error = workplace.error(text, allow_guesses=False, **given)
    assert isinstance(error, GuessNeededError)
    assert error.what.startswith(missing)
    assert error.help.endswith("or --allow-guesses")


def test_what_nobody_can_guess_is_no_refused_guess(workplace):
    text = ONLY_A_CLASS.replace("hidden=3", "hidden: nn.Module")
    error = workplace.error(text, allow_guesses=False)
    assert not isinstance(error, GuessNeededError)
