"""Batches of training steps, in order."""

from itertools import islice

import pytest
import torch

from gradscope.errors import GradscopeError, UserCodeError
from gradscope.target import batches as loader
from gradscope.target.batches import Batches, LoadedBatches

NET = "model = nn.Linear(3, 1)\n"


def numbers(batches, count):
    return [int(batch) for batch in islice(batches, count)]


class Counting:
    """Gives the numbers from 0, and counts what was read."""

    def __init__(self, length):
        self.length, self.read = length, 0

    def __iter__(self):
        for number in range(self.length):
            self.read += 1
            yield torch.tensor(number)


def test_one_batch_comes_again_and_again():
    assert numbers(Batches(torch.tensor(4)), 3) == [4, 4, 4]


def test_loader_begins_again_at_its_end():
    assert numbers(LoadedBatches(Counting(3), "loader", "model.py"), 8) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_only_the_first_batch_is_read_before_more_are_asked_for():
    source = Counting(5)
    batches = LoadedBatches(source, "loader", "model.py")
    assert source.read == 1
    numbers(batches, 1)
    assert source.read == 1
    numbers(batches, 3)
    assert source.read == 3


def test_one_shot_iterator_gives_what_it_gave_again():
    batches = LoadedBatches(iter(Counting(3)), "loader", "model.py")
    assert numbers(batches, 8) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_of_a_one_shot_iterator_so_much_is_kept_as_is_allowed(monkeypatch):
    monkeypatch.setattr(loader, "STORED_BYTES", 2 * torch.tensor(0).element_size())
    batches = LoadedBatches(iter(Counting(4)), "loader", "model.py")
    assert numbers(batches, 8) == [0, 1, 2, 3, 0, 1, 0, 1]


def test_endless_iterator_needs_no_end():
    def batches():
        number = 0
        while True:
            yield torch.tensor(number)
            number += 1

    assert numbers(LoadedBatches(batches(), "loader", "model.py"), 500) == list(range(500))


def test_loader_that_is_spent_is_told():
    class Once:
        def __init__(self):
            self.rest = iter([torch.tensor(0), torch.tensor(1)])

        def __iter__(self):
            return iter(self.rest)

    batches = iter(LoadedBatches(Once(), "loader", "model.py"))
    assert numbers(batches, 2) == [0, 1]
    with pytest.raises(GradscopeError, match="gives no batch in a second iteration"):
        next(batches)


def test_what_a_later_batch_raises_is_the_users():
    def batches():
        yield torch.tensor(0)
        raise KeyError("x")

    reading = iter(LoadedBatches(batches(), "loader", "model.py"))
    next(reading)
    with pytest.raises(UserCodeError, match="reading the next batch of 'loader' failed: KeyError"):
        next(reading)


def test_every_batch_is_prepared_once():
    batches = LoadedBatches(Counting(3), "loader", "model.py").mapped(lambda batch: batch + 10)
    assert numbers(batches, 5) == [10, 11, 12, 10, 11]


def test_closed_batches_begin_anew():
    batches = LoadedBatches(Counting(3), "loader", "model.py")
    batches.close()
    assert int(batches.first) == 0
    assert numbers(batches, 3) == [0, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "train_loader = torch.utils.data.DataLoader(torch.arange(4).view(4, 1) + 0.0)\n",
        "def train_dataloader():\n    yield from torch.arange(4).view(4, 1, 1) + 0.0\n",
        "def build_batch():\n"
        "    return torch.utils.data.DataLoader(torch.arange(4).view(4, 1) + 0.0)\n",
        "def gradscope_setup():\n"
        "    return dict(batch=iter((torch.arange(4).view(4, 1, 1) + 0.0).unbind()))\n",
    ],
)
def test_loaders_of_a_file_give_batch_after_batch(workplace, text):
    target = workplace.load("model = nn.Linear(1, 1)\n" + text, dtype="float64")
    batches = list(islice(target.batches, 6))
    assert target.batch is batches[0]
    assert [batch.item() for batch in batches] == [0, 1, 2, 3, 0, 1]
    assert {batch.dtype for batch in batches} == {torch.float64}


def test_named_loader_of_the_command_line(workplace):
    target = workplace.load(
        NET + "mine = iter([torch.zeros(2, 3), torch.ones(2, 3)])\n", batch="mine"
    )
    assert [batch.mean().item() for batch in islice(target.batches, 3)] == [0, 1, 0]


@pytest.mark.parametrize("chosen", [{"inputs": ("4,3",)}, {}])
def test_anything_else_is_one_batch(workplace, chosen):
    target = workplace.load(NET + "batch = [torch.zeros(2, 3)]\n", **chosen)
    first, second = islice(target.batches, 2)
    assert first is second is target.batch
