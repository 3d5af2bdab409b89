"""Tests which parameters are recognized as shards."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard

from gradscope.capture.naming import is_shard, name_model


@pytest.mark.parametrize(
    ("placements", "expected"),
    [((Shard(0),), True), ((Replicate(), Shard(1)), True), ((Replicate(),), False), ((), False)],
)
def test_a_distributed_tensor_is_a_shard_where_its_elements_are_dealt_out(placements, expected):
    assert is_shard(SimpleNamespace(placements=placements)) is expected


def test_ordinary_parameters_are_whole():
    assert not is_shard(torch.ones(2))
    named = name_model(nn.Linear(2, 2), None)
    assert [record.is_shard for record in named.parameter_records] == [False, False]
