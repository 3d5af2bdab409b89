import pytest

from gradscope.probes.attributes import _is_like
from tests.nightly import some_on_push
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only
from tests.rules.optimizing import ADAM, FILE


@pytest.mark.parametrize(
    ("line", "parameters"),
    some_on_push(
        [
            ("for p in model.blocks.parameters(): p.require_grad = False", 6),
            ("for p in model.head.parameters(): setattr(p, 'requires_gradient', False)", 2),
            ("model.head.weight.requiresgrad = False", 1),
            ("model.blocks.requires_grad = False", 6),
            ("model.require_grads = False", 10),
        ],
        {0, 3},
    ),
)
def test_misspelt_attribute_is_found_with_its_line(inspect_file, line, parameters):
    finding = only(inspect_file(f"{FILE}{line}\n{ADAM}\n").findings, "GS210")
    assert finding.severity == "warning"
    assert finding.location.source == line
    assert len(finding.parameters) == parameters
    assert "freezes nothing" in finding.message


def test_attribute_set_in_the_models_own_init_is_found(inspect_file):
    text = FILE.replace("self.embed = ", "self.requires_grad = False; self.embed = ")
    assert only(inspect_file(text).findings, "GS210").location.function == "Net.__init__"


@pytest.mark.parametrize(
    "text",
    some_on_push(
        [
            "model.blocks.requires_grad_(False)",
            # It says what is so anyway.
            "model.blocks.requires_grad_(False); model.blocks.requires_grad = False",
            "model.head.weight.require_grad = True",
            # Other attributes.
            "model.head.weight.requires_decay = False",
            "model.head.weight.require_grad = 'no'",
            # A setting of the class's own.
            "class Own(Net):\n"
            "    def forward(self, x):\n"
            "        return super().forward(x if self.requires_grad else x)\n"
            "model = Own()\nmodel.requires_grad = False",
        ],
        2,
    ),
)
def test_healthy_code_is_left_alone(inspect_file, text):
    findings = inspect_file(f"{FILE}{text}\n{ADAM}\n").findings
    assert [finding for finding in findings if finding.rule == "GS210"] == []


@pytest.mark.parametrize(
    ("name", "is_like"),
    [
        ("require_grad", True),
        ("requires_gradient", True),
        ("requires_gradients", True),
        ("requiresGrad", True),
        ("required_grad", True),
        ("requires_decay", False),
        ("grad", False),
        ("training", False),
    ],
)
def test_likeness(name, is_like):
    assert _is_like(name) is is_like


SCRIPT = """
import torch
from torch import nn


class Head(nn.Linear):
    def forward(self, x):
        return super().forward(x)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Head(8, 2))
model[0].requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    if step == STEP:
        CHANGE  # here
    loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.arange(8) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("step", ["0", "25"])
def test_attribute_set_on_a_module_during_a_run_is_found_once(tmp_path, step):
    script = tmp_path / "train.py"
    text = SCRIPT.replace("STEP", step).replace("CHANGE", "model[0].requires_grad = True")
    script.write_text(text)
    finding = only(watching.findings_of_script(script, tmp_path), "GS210")
    assert {finding.location.line} == marked_lines(script, "# here")
    assert "unfreezes nothing: 2 parameters are still frozen" in finding.message


@pytest.mark.parametrize(
    "change",
    [
        "model[0].requires_grad_(True)",
        "model[0].requires_grad = True; model[0].requires_grad_(True)",
        "model[0].weight.requires_grad = True",
        "model[2].requires_grad = True",
    ],
    ids=["the method", "both", "a parameter", "what learns anyway"],
)
def test_changes_during_a_run_that_do_what_they_say(tmp_path, change):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("STEP", "25").replace("CHANGE", change))
    found = watching.findings_of_script(script, tmp_path)
    assert [one for one in found if one.rule == "GS210"] == []


def test_a_class_that_reads_the_attribute_has_a_setting_of_its_own(tmp_path):
    text = SCRIPT.replace(
        "super().forward(x)", "super().forward(x * bool(self.requires_grad or 1))"
    )
    text = text.replace("torch.manual_seed(0)", "Head.requires_grad = None").replace("STEP", "25")
    script = tmp_path / "train.py"
    script.write_text(text.replace("CHANGE", "model[2].requires_grad = False"))
    found = watching.findings_of_script(script, tmp_path)
    assert [one for one in found if one.rule == "GS210"] == []
