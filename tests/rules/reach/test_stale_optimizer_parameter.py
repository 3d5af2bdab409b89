import pytest
import torch
from torch import nn

import gradscope
from tests.nightly import some_on_push
from tests.rules.inspecting import only
from tests.rules.optimizing import ADAM, FILE, Net, batch
from tests.rules.watching import findings_of_script


def found(inspect_file, text):
    report = inspect_file(f"{FILE}{text}\n")
    return [finding for finding in report.findings if finding.rule == "GS206"]


@pytest.mark.parametrize(
    ("line", "parameters"),
    some_on_push(
        [
            ("model.head = nn.Linear(16, 4)", {"head.weight", "head.bias"}),
            ("model.head.weight = nn.Parameter(torch.randn(4, 16))", {"head.weight"}),
            ("model.blocks[1] = nn.Linear(16, 16)", {"blocks.1.weight", "blocks.1.bias"}),
        ],
        {0, 1},
    ),
)
def test_replacement_is_named_with_both_lines(inspect_file, line, parameters):
    (finding,) = found(inspect_file, f"{ADAM}\n{line}")
    assert finding.severity == "error" or "blocks" in line
    assert finding.location.source == line
    assert [position.source for position in finding.related] == [ADAM]
    if "blocks" not in line:
        assert set(finding.parameters) == parameters
        assert [one.rule for one in finding.consequences] == ["GS205"]


@pytest.mark.parametrize("line", ["model = Net()", "model = copy.deepcopy(model)"])
def test_model_that_was_made_again_is_an_error_at_the_optimizer(inspect_file, line):
    (finding,) = found(inspect_file, f"{ADAM}\n{line}")
    assert (finding.severity, finding.location.source) == ("error", ADAM)
    assert "another copy of the model" in finding.message
    assert len(finding.parameters) == 10


def test_weights_that_were_loaded_by_assignment_are_not_the_optimizers(inspect_file):
    line = "model.load_state_dict(Net().state_dict(), assign=True)"
    (finding,) = found(inspect_file, f"{ADAM}\n{line}")
    assert (finding.severity, finding.location.source) == ("error", line)


@pytest.mark.parametrize(
    "text",
    [
        f"{ADAM}\nmodel.head = nn.Linear(16, 4)\n"
        "optimizer.add_param_group({'params': model.head.parameters()})",
        f"{ADAM}\nmodel.blocks[0] = nn.Identity()",
    ],
)
def test_what_is_stale_and_missed_by_nobody_is_a_note(inspect_file, text):
    (finding,) = found(inspect_file, text)
    assert finding.severity == "note"


@pytest.mark.parametrize(
    "text",
    some_on_push(
        [
            ADAM,
            f"model.head = nn.Linear(16, 4)\n{ADAM}",
            # A wrapper that keeps what it wraps, as adapters do.
            f"{ADAM}\nmodel.head = nn.Sequential(model.head)",
            # A loss with parameters of its own.
            "scale = nn.Parameter(torch.ones(()))\n"
            "def criterion(o, t): return nn.functional.cross_entropy(o * scale, t)\n"
            "optimizer = torch.optim.AdamW([*model.parameters(), scale], 1e-3)",
            # A second network in the same optimizer.
            "other = Net()\n"
            "optimizer = torch.optim.AdamW([*model.parameters(), *other.parameters()], 1e-3)",
            # The inspected instance is built for the inspection.
            f"def build_model(): return Net()\n{ADAM}",
        ],
        2,
    ),
)
def test_healthy_code_is_left_alone(inspect_file, text):
    assert found(inspect_file, text) == []


def test_without_watched_definitions_the_place_in_the_list_tells():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.head = nn.Linear(8, 3)
    findings = gradscope.inspect(
        model, batch(), nn.functional.cross_entropy, optimizer=optimizer
    ).findings
    finding = only(findings, "GS206")
    assert finding.severity == "error"
    assert finding.parameters == ("head.weight", "head.bias")


def test_optimizer_of_a_model_of_other_shapes_is_nobodys_mistake():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
    report = gradscope.inspect(Net(), batch(), nn.functional.cross_entropy, optimizer=optimizer)
    assert report.findings == ()


ENSEMBLE = """
import itertools
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

members = [nn.Linear(3, 1) for _ in range(4)]
stacked, buffers = stack_module_state(members)  # copied
skeleton = nn.Linear(3, 1)
optimizer = torch.optim.SGD(HELD, lr=0.1)  # made
for step in range(6):
    x = torch.randn(8, 3)
    out = vmap(lambda p, b: functional_call(skeleton, (p, b), (x,)))(stacked, buffers)
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("held", "expected"),
    some_on_push(
        [("itertools.chain(*(one.parameters() for one in members))", 1), ("stacked.values()", 0)], 2
    ),
)
def test_optimizer_of_what_was_copied_for_the_loss(tmp_path, held, expected):
    script = tmp_path / "train.py"
    script.write_text(ENSEMBLE.replace("HELD", held))
    found = findings_of_script(script, tmp_path)
    assert [(one.rule, one.severity) for one in found] == [("GS206", "error")] * expected
    for one in found:
        lines = script.read_text().splitlines()
        assert lines[one.location.line - 1].endswith("# made")
        assert [lines[r.line - 1].endswith("# copied") for r in one.related] == [True]
        assert "trains 2 tensors copied from them" in one.message
