import pytest

from tests.rules.inspecting import only
from tests.rules.optimizing import ADAM, FILE

ADAMW = "optimizer = torch.optim.AdamW"


def found(inspect_file, text):
    report = inspect_file(FILE + text)
    return [finding for finding in report.findings if finding.rule == "GS205"]


def test_layer_that_was_added_after_the_optimizer_is_an_error(inspect_file):
    text = f"{ADAM}\nmodel.blocks.append(nn.Linear(16, 16))\n"
    finding = only(inspect_file(FILE + text).findings, "GS205")
    assert finding.severity == "error"
    assert finding.parameters == ("blocks.3.weight", "blocks.3.bias")
    assert finding.location.source == ADAM
    assert finding.related[0].source == "model.blocks.append(nn.Linear(16, 16))"
    assert "was made before" in finding.message


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        # The head builds on what is trained; the first layers may be left out on purpose.
        ("[*model.embed.parameters(), *model.blocks.parameters()]", "error"),
        ("[*model.head.parameters(), *model.blocks.parameters()]", "warning"),
        ("[p for n, p in model.named_parameters() if 'bias' not in n]", "error"),
        # Chosen parts: a linear probe, and biases alone.
        ("model.head.parameters()", "note"),
        ("[p for n, p in model.named_parameters() if 'bias' in n]", "note"),
    ],
)
def test_what_is_left_out_tells_how_bad_it_is(inspect_file, given, severity):
    (finding,) = found(inspect_file, f"{ADAMW}({given}, 1e-3)\n")
    assert finding.severity == severity
    assert finding.location.source.startswith(ADAMW)


@pytest.mark.parametrize(
    "text",
    [
        ADAM,
        # Two optimizers that share the model between them.
        f"{ADAMW}(model.head.parameters(), 1e-3)\n"
        "other = torch.optim.SGD([*model.embed.parameters(), *model.blocks.parameters()], 0.1)",
        # Groups with and without weight decay.
        "named = list(model.named_parameters())\n"
        f"{ADAMW}([{{'params': [p for n, p in named if 'bias' in n], 'weight_decay': 0.0}},"
        " {'params': [p for n, p in named if 'bias' not in n]}], 1e-3)",
        # Frozen and filtered.
        "model.blocks.requires_grad_(False)\n"
        f"{ADAMW}([p for p in model.parameters() if p.requires_grad], 1e-3)",
        # Added in time, or to the optimizer too.
        f"model.head = nn.Linear(16, 4)\n{ADAM}",
        f"{ADAM}\nmodel.blocks.append(nn.Linear(16, 16))\n"
        "optimizer.add_param_group({'params': model.blocks[3].parameters()})",
        # The optimizer of another instance than the one that is inspected.
        f"def build_model(): return Net()\n{ADAM}",
        # Left out, and reached by no gradient.
        f"{ADAM}\nmodel.spare = nn.Linear(2, 2)",
        # No optimizer at all.
        "",
    ],
)
def test_healthy_code_is_left_alone(inspect_file, text):
    assert found(inspect_file, text + "\n") == []


def test_layers_in_eval_mode_are_a_choice(inspect_file):
    text = f"{ADAMW}([*model.embed.parameters(), *model.blocks.parameters()], 1e-3)\n"
    text += "train = model.train\ndef keep(mode=True):\n    train(mode)\n    model.head.eval()\n"
    text += "    return model\nmodel.train = keep\n"
    (finding,) = found(inspect_file, text)
    assert finding.severity == "note"
