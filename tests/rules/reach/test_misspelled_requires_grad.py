import pytest

from gradscope.probes.attributes import _is_like
from tests.nightly import some_on_push
from tests.rules.inspecting import only
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
