import copy
import warnings

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.inspecting import only
from tests.rules.optimizing import ADAM, FILE
from tests.rules.watching import findings_of

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
    some_on_push(
        [
            # The head builds on what is trained; the first layers may be left out on purpose.
            ("[*model.embed.parameters(), *model.blocks.parameters()]", "error"),
            ("[*model.head.parameters(), *model.blocks.parameters()]", "warning"),
            ("[p for n, p in model.named_parameters() if 'bias' not in n]", "error"),
            # Chosen parts: a linear probe, and biases alone.
            ("model.head.parameters()", "note"),
            ("[p for n, p in model.named_parameters() if 'bias' in n]", "note"),
        ],
        {0, 1, 3},
    ),
)
def test_what_is_left_out_tells_how_bad_it_is(inspect_file, given, severity):
    (finding,) = found(inspect_file, f"{ADAMW}({given}, 1e-3)\n")
    assert finding.severity == severity
    assert finding.location.source.startswith(ADAMW)


@pytest.mark.parametrize(
    "text",
    some_on_push(
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
        3,
    ),
)
def test_healthy_code_is_left_alone(inspect_file, text):
    assert found(inspect_file, text + "\n") == []


def test_layers_in_eval_mode_are_a_choice(inspect_file):
    text = f"{ADAMW}([*model.embed.parameters(), *model.blocks.parameters()], 1e-3)\n"
    text += "train = model.train\ndef keep(mode=True):\n    train(mode)\n    model.head.eval()\n"
    text += "    return model\nmodel.train = keep\n"
    (finding,) = found(inspect_file, text)
    assert finding.severity == "note"


PAIR = """
import torch
from torch import nn

def layers(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, outputs),
    )

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = layers(6, 32, 6)
        self.actor = layers(6, 32, 2)
        self.critic = {critic}

    def forward(self, x):
        x = self.encoder(x)
        return self.critic(torch.cat([x, torch.tanh(self.actor(x))], dim=1))

def loss_fn(output, batch):
    return -output.mean()

batch = torch.randn(16, 6)
model = Pair()
optimizer = torch.optim.Adam({given}, 1e-3)
"""


@pytest.mark.parametrize(
    ("critic", "given", "severity"),
    some_on_push(
        [
            ("layers(8, 32, 1)", "model.actor.parameters()", "note"),
            (
                "layers(8, 4, 1)",
                "[*model.actor.parameters(), *model.encoder.parameters()]",
                "warning",
            ),
            (
                "nn.Linear(8, 1)",
                "[*model.actor.parameters(), *model.encoder.parameters()]",
                "error",
            ),
        ],
        {0, 2},
    ),
    ids=["actor", "generator of two parts", "head"],
)
def test_network_that_the_loss_goes_through_is_not_a_forgotten_head(
    inspect_file, critic, given, severity
):
    torch.manual_seed(0)
    findings = found(inspect_file, PAIR.format(critic=critic, given=given))
    assert {finding.severity for finding in findings} == {severity}


def test_actor_and_critic_alone_are_a_note_whatever_their_size(inspect_file):
    text = PAIR.replace("self.encoder = layers(6, 32, 6)", "self.encoder = nn.Identity()")
    for critic in ("layers(8, 4, 1)", "layers(8, 64, 1)"):
        text_of = text.format(critic=critic, given="model.actor.parameters()")
        (finding,) = found(inspect_file, text_of)
        assert finding.severity == "note"


def adapted(*, handed):
    """A model whose copies are adapted to tasks, and which gets their gradients if handed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            learner = copy.deepcopy(model)
            x = torch.randn(16, 4)
            learner(x).square().mean().backward()
            for own, other in zip(model.parameters(), learner.parameters(), strict=True):
                if handed:
                    own.grad = other.grad if own.grad is None else own.grad + other.grad
        optimizer.step()


@pytest.mark.parametrize("handed", [True, False])
def test_a_copy_that_hands_its_gradients_to_the_model_is_fine(tmp_path, handed):
    told = findings_of(lambda: adapted(handed=handed), tmp_path)
    assert any(one.rule == "GS205" for one in told) is not handed


def with_copies(*, returned):
    """A model whose copies in float32 are stepped with its gradients, and returned or not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).bfloat16()
    copies = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.Adam(copies, lr=1e-2)
    for _ in range(30):
        model.zero_grad()
        model(torch.randn(16, 4, dtype=torch.bfloat16)).float().square().mean().backward()
        for own, other in zip(model.parameters(), copies, strict=True):
            other.grad = own.grad.float()
        optimizer.step()
        for own, other in zip(model.parameters(), copies, strict=True) if returned else ():
            own.data.copy_(other)


@pytest.mark.parametrize("returned", [True, False])
def test_copies_are_stepped_and_returned(tmp_path, returned):
    told = findings_of(lambda: with_copies(returned=returned), tmp_path)
    found = [one for one in told if one.rule == "GS205"]
    assert bool(found) is not returned
    if found:
        assert found[0].severity == "error"
        assert found[0].location.source == "optimizer = torch.optim.Adam(copies, lr=1e-2)"
        assert found[0].message.endswith("nothing copies their values back")


def made_by_caller(params):
    params = list(params)
    decay = [p for p in params if p.dim() > 1]
    rest = [p for p in params if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}])


def made_by_helper(model):
    return torch.optim.AdamW(model[0].parameters())


def without_head(make):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = make(model[0].parameters() if make is made_by_caller else model)
    for _ in range(20):
        optimizer.zero_grad()
        x = torch.randn(16, 4)
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("make", "source"),
    [
        (made_by_caller, "optimizer = make(model[0]"),
        (made_by_helper, "return torch.optim.AdamW(model[0]"),
    ],
)
def test_line_is_where_the_parameters_are_chosen(tmp_path, make, source):
    (found,) = [
        one for one in findings_of(lambda: without_head(make), tmp_path) if one.rule == "GS205"
    ]
    assert found.severity == "error"
    assert found.location.source.startswith(source)


def given_only(choose):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 32), nn.Linear(32, 3)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if choose(p)])
    for _ in range(20):
        model.zero_grad()
        x = torch.randn(16, 4)
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("choose", "severities"),
    [(lambda p: p.dim() > 1, {"error", "warning"}), (lambda p: p.dim() == 1, {"note"})],
)
def test_weights_without_their_biases_are_no_choice(tmp_path, choose, severities):
    told = findings_of(lambda: given_only(choose), tmp_path)
    assert {one.severity for one in told if one.rule == "GS205"} == severities


def trained(late, wrap):
    """Return a loop that wraps a layer's weight before the optimizer is made, or behind it."""

    def loop():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        if not late:
            wrap(model[0])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        if late:
            wrap(model[0])
        for _ in range(4):
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return loop


def old_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(layer)


WRAPS = [nn.utils.parametrizations.weight_norm, old_weight_norm]


@pytest.mark.parametrize("wrap", some_on_push(WRAPS, 2))
def test_a_weight_that_is_split_behind_the_optimizer_is_one_error_there(wrap, tmp_path):
    (finding,) = findings_of(trained(late=True, wrap=wrap), tmp_path)
    assert (finding.rule, finding.severity) == ("GS205", "error")
    assert "wrap(model[0])" in finding.location.source or "weight_norm" in finding.location.source
    assert any("Adam" in one.source for one in finding.related)


@pytest.mark.parametrize("wrap", some_on_push(WRAPS, 2))
def test_a_weight_that_is_split_before_the_optimizer_is_fine(wrap, tmp_path):
    assert not findings_of(trained(late=False, wrap=wrap), tmp_path)


def test_a_parametrization_that_keeps_the_weight_is_fine_behind_the_optimizer(tmp_path):
    def wrap(layer):
        nn.utils.parametrizations.spectral_norm(layer)

    assert not findings_of(trained(late=True, wrap=wrap), tmp_path)


def distilled():
    """A teacher that its own optimizer has trained, and a student without its projection's."""
    torch.manual_seed(0)
    teacher, student = (nn.Sequential(nn.Linear(4, n), nn.Tanh(), nn.Linear(n, 3)) for n in (16, 8))
    projection = nn.Linear(8, 16)
    early = torch.optim.SGD(teacher.parameters(), lr=0.1)
    x = torch.randn(16, 4)
    y = x[:, :3].argmax(1)
    for _ in range(6):
        early.zero_grad()
        nn.functional.cross_entropy(teacher(x), y).backward()
        early.step()
    late = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(20):
        late.zero_grad()
        with torch.no_grad():
            hint = teacher[0](x)
        loss = nn.functional.cross_entropy(student(x), y)
        (loss + nn.functional.mse_loss(projection(student[0](x)), hint)).backward()
        late.step()


def test_the_optimizer_of_the_same_loss_is_named(tmp_path):
    (found,) = [one for one in findings_of(distilled, tmp_path) if one.rule == "GS205"]
    assert found.parameters == ("projection.weight", "projection.bias")
    assert found.location.source.startswith("late = ")
