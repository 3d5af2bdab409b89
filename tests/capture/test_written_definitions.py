"""Tests the lines of modules and parameters, read from the user's classes."""

import inspect

import torch
from torch import nn

from gradscope.capture.naming import name_model
from gradscope.capture.source.statements import written_definitions


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)  # linear
        self.scale = nn.Parameter(torch.ones(2))  # scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))  # blocks
        self.encoder = nn.TransformerEncoderLayer(4, 2)  # encoder


def test_parts_are_found_where_the_users_class_assigns_them():
    named = name_model(Model(), None)
    definitions = written_definitions(named)
    lines, _ = inspect.findsource(Model)

    def mark(line):
        return None if line is None else lines[line.number - 1].rpartition("# ")[2].strip()

    by_path = {
        record.path: mark(definitions.modules.get(module))
        for module, record in zip(named.modules, named.module_records, strict=True)
    }
    assert by_path[""] is None
    assert by_path["blocks"] == by_path["blocks.1"] == "blocks"
    assert by_path["blocks.0.linear"] == "linear"
    assert by_path["encoder"] == by_path["encoder.self_attn"] == "encoder"
    by_name = {
        record.name: mark(definitions.registration(parameter).line)
        for parameter, record in zip(named.parameters, named.parameter_records, strict=True)
    }
    assert by_name["blocks.1.scale"] == "scale"
    assert by_name["blocks.1.linear.bias"] == "linear"
    assert by_name["encoder.self_attn.in_proj_weight"] == "encoder"


def test_model_of_torchs_modules_alone_has_no_lines():
    named = name_model(nn.Sequential(nn.Linear(2, 2)), None)
    definitions = written_definitions(named)
    assert len(definitions.modules) == 0
    assert definitions.registration(named.parameters[0]) is None
