import json
from collections import UserDict, namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_sequence

from gradscope.errors import GradscopeError
from gradscope.target.batches import copy_batch, is_batch_file, move_batch, read_batch
from gradscope.target.structures import describe, map_tensors, named_tensors

Pair = namedtuple("Pair", ["x", "y"])
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    tag: str = field(init=False, default="kept")


class Encoding(UserDict):
    def __init__(self, data, extra):
        super().__init__(data)
        self.extra = extra


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2),
        (torch.ones(2), [torch.ones(3)]),
        {"a": torch.ones(2), "b": {"c": (torch.ones(1),)}},
        Pair(torch.ones(2), torch.ones(1)),
        Frozen(torch.ones(2)),
        Encoding({"a": torch.ones(2)}, "kept"),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_every_container_is_rebuilt_in_its_own_type(batch):
    moved = move_batch(batch, CPU, torch.float64)
    assert type(moved) is type(batch)
    assert all(tensor.dtype is torch.float64 for _, tensor in named_tensors(moved, ""))
    assert all(tensor.dtype is torch.float32 for _, tensor in named_tensors(batch, ""))


def test_what_a_container_holds_beside_tensors_is_kept():
    assert map_tensors(Encoding({"a": torch.ones(1)}, "kept"), torch.neg).extra == "kept"
    assert map_tensors(Frozen(torch.ones(1)), torch.neg).tag == "kept"
    assert map_tensors({"n": 3, "s": "x", "shape": torch.Size([2])}, torch.neg) == {
        "n": 3,
        "s": "x",
        "shape": torch.Size([2]),
    }


def test_lengths_of_a_packed_sequence_are_not_touched():
    packed = pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    moved = move_batch(packed, CPU, torch.float64)
    assert moved.data.dtype is torch.float64
    assert moved.batch_sizes.dtype is torch.int64


def test_hugging_face_encodings_stay_encodings():
    transformers = pytest.importorskip("transformers")
    encoding = transformers.BatchEncoding({"input_ids": torch.ones(1, 2, dtype=torch.int64)})
    copied = copy_batch(encoding)
    assert type(copied) is transformers.BatchEncoding
    assert copied["input_ids"] is not encoding["input_ids"]


def test_copies_keep_leaves_and_aliases():
    leaf, shared = torch.ones(1, requires_grad=True), torch.ones(2)
    one, two, three = copy_batch([leaf, shared, shared])
    assert one is leaf
    assert two is three is not shared


def test_moved_leaf_stays_a_leaf_and_integers_keep_their_type():
    leaf, tokens = move_batch(
        (torch.ones(1, requires_grad=True), torch.ones(1, dtype=torch.int64)), CPU, torch.float64
    )
    assert leaf.is_leaf
    assert leaf.requires_grad
    assert tokens.dtype is torch.int64


def test_description_names_what_has_a_name():
    batch = {"ids": torch.ones(2, 3, dtype=torch.int64), "rest": (torch.ones(4),)}
    assert describe(batch) == "ids int64[2,3], float32[4]"
    assert describe(None) == "NoneType"
    assert describe([torch.ones(1)] * 11).endswith("float32[1], and 3 more")


def test_files_of_each_kind_are_read(tmp_path):
    x, y = torch.tensor([[0.5, 1.0]]), torch.tensor([1])
    torch.save((x, y), tmp_path / "b.pt")
    np.savez(tmp_path / "pair.npz", x.numpy(), y.numpy())
    np.savez(tmp_path / "named.npz", x=x.numpy(), y=y.numpy())
    save_file({"x": x, "y": y}, tmp_path / "b.safetensors")
    (tmp_path / "b.json").write_text(json.dumps({"x": x.tolist(), "y": y.tolist(), "tag": "t"}))
    for name in ("b.pt", "pair.npz"):
        pair = read_batch(str(tmp_path / name))
        assert isinstance(pair, tuple)
        assert torch.equal(pair[0], x)
        assert torch.equal(pair[1], y)
    for name in ("named.npz", "b.safetensors", "b.json"):
        batch = read_batch(str(tmp_path / name))
        assert torch.equal(batch["x"], x)
        assert torch.equal(batch["y"], y)


class Evil:
    def __reduce__(self):
        return (print, ("ran",))


def test_file_that_would_run_code_is_refused(tmp_path, capsys):
    torch.save({"x": Evil()}, tmp_path / "b.pt")
    with pytest.raises(GradscopeError) as caught:
        read_batch(str(tmp_path / "b.pt"))
    assert "would run code" in caught.value.cause
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.pt", b"nonsense"),
        ("b.npz", b"nonsense"),
        ("b.safetensors", b"nonsense"),
        ("b.json", b"{"),
        ("ragged.json", b'{"x": [[1, 2], [3]]}'),
        ("huge.json", b"[99999999999999999999999]"),
        ("b.txt", b"1 2 3"),
    ],
)
def test_unreadable_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GradscopeError, match=name):
        read_batch(str(tmp_path / name))


def test_missing_file_offers_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch.pt").write_bytes(b"")
    with pytest.raises(GradscopeError) as caught:
        read_batch("bacth.pt")
    assert caught.value.help == "did you mean 'batch.pt'?"


@pytest.mark.parametrize(
    ("text", "is_file"),
    [("b.pt", True), ("d/b", True), ("make", False), ("a.b", False), ("f('a/b.pt')", False)],
)
def test_batch_files_are_told_from_expressions(text, is_file):
    assert is_batch_file(text) is is_file
