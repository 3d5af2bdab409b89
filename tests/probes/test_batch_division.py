"""Splitting batches: the concatenated parts are the whole."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gradscope.errors import GradscopeError
from gradscope.probes.micro_batches.batch_division import divide

X, Y = torch.randn(6, 3), torch.arange(6)


def dims(batch):
    return [tuple(tensor.shape) for tensor in batch]


@given(st.integers(2, 40), st.data())
def test_parts_are_the_rows_in_order_and_differ_by_one_at_most(rows, data):
    number = data.draw(st.integers(2, rows))
    x = torch.arange(rows * 2).view(rows, 2)
    division = divide((x, x[:, 0]), number)
    assert torch.equal(torch.cat([part[0] for part in division.parts]), x)
    assert torch.equal(torch.cat([part[1] for part in division.parts]), x[:, 0])
    assert division.sizes == tuple(len(part) for part in x.tensor_split(number))


def test_dictionary_repeats_what_has_no_batch_dimension():
    batch = {"input_ids": X, "labels": Y, "position_ids": torch.arange(3)[None], "scale": 2.0}
    division = divide(batch, 2)
    assert division.rows == 6
    assert division.repeated == ("batch['position_ids']",)
    assert dims([part["input_ids"] for part in division.parts]) == [(3, 3), (3, 3)]
    assert division.parts[0]["position_ids"] is batch["position_ids"]
    assert division.parts[0]["scale"] == 2.0


def test_batch_encoding_stays_one():
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"input_ids": X, "labels": Y})
    first, second = divide(batch, 2).parts
    assert type(first) is transformers.BatchEncoding
    assert torch.equal(second["labels"], Y[3:])
    assert torch.equal(batch["labels"], Y)


@dataclass(frozen=True)
class Pair:
    x: torch.Tensor
    texts: list


def test_texts_go_with_their_rows():
    first, second = divide(Pair(x=X, texts=list("abcdef")), 2).parts
    assert (first.texts, second.texts) == (list("abc"), list("def"))
    assert torch.equal(second.x, X[3:])


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_of_examples_of_all_sizes(kind):
    images = kind(torch.randn(3, 5 + size, 4) for size in range(4))
    targets = kind({"boxes": torch.randn(1 + size, 4)} for size in range(4))
    division = divide((images, targets), 2)
    assert (division.rows, division.repeated) == (4, ())
    assert division.parts[1][0][0] is images[2]
    assert division.parts[1][1][1] is targets[3]


def test_nested_inputs_are_no_list_of_examples():
    division = divide(([X, X + 1], Y), 3)
    assert dims(division.parts[2][0]) == [(2, 3), (2, 3)]


def test_sequences_before_examples_are_divided_along_the_second_dimension():
    x, y = torch.randn(20, 6, 5), torch.arange(6)
    first, second = divide((x, y), 2).parts
    assert torch.equal(torch.cat([first[0], second[0]], dim=1), x)
    source, target = torch.randint(9, (7, 6)), torch.randint(9, (5, 6))
    assert dims(divide((source, target), 2).parts[0]) == [(7, 3), (5, 3)]


def test_lengths_tell_sequences_before_examples():
    x, lengths, y = torch.randn(6, 4, 5), torch.tensor([6, 2, 3, 1]), torch.randn(6, 4)
    assert dims(divide((x, lengths, y), 2).parts[0]) == [(6, 2, 5), (2,), (6, 2)]
    # While positions are no examples.
    ids = torch.randint(9, (4, 6))
    division = divide({"ids": ids, "positions": torch.arange(6), "labels": ids}, 2)
    assert (division.rows, division.repeated) == (4, ("batch['positions']",))


def test_class_weights_in_the_batch_are_no_examples():
    division = divide((X, torch.ones(3)), 2)
    assert (division.rows, division.repeated) == (6, ("batch[1]",))


def test_flattened_targets_go_with_their_rows():
    ids, targets = torch.randint(9, (6, 4)), torch.arange(24)
    division = divide((ids, targets), 4)
    assert dims(part[1] for part in division.parts) == [(8,), (8,), (4,), (4,)]
    assert torch.equal(torch.cat([part[1] for part in division.parts]), targets)


def test_packed_sequences_keep_their_lengths():
    lengths = torch.tensor([4, 2, 7, 1, 3, 5])
    packed = pack_padded_sequence(torch.randn(7, 6, 2), lengths, enforce_sorted=False)
    whole, _ = pad_packed_sequence(packed)
    second = divide((packed, Y), 2).parts[1][0]
    padded, left = pad_packed_sequence(second)
    assert left.tolist() == [1, 3, 5]
    assert torch.equal(padded, whole[:5, 3:])


def test_leaves_stay_leaves_and_the_batch_is_not_touched():
    x = torch.randn(4, 2, requires_grad=True)
    (first, _) = divide(x, 2).parts
    assert first.is_leaf
    assert first.requires_grad
    first.detach().zero_()
    assert x.detach().abs().min() > 0


@pytest.mark.parametrize("batch", [None, {}, torch.tensor(1.0), ({"a": 1}, "text"), object()])
def test_batch_without_rows_is_an_error(batch):
    with pytest.raises(GradscopeError, match=r"^2 micro-batches: the batch has no dimension"):
        divide(batch, 2)


def test_fewer_rows_than_parts_are_an_error():
    with pytest.raises(GradscopeError, match="has 6 examples only"):
        divide((X, Y), 7)
