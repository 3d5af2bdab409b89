"""GS203: what runs for nothing, and what never runs."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.rules.context import RuleContext
from gradscope.rules.reach.unused_parameter import UnusedParameter
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.nightly import some_on_push
from tests.rules.inspecting import marked_lines, only

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


class Heads(nn.Module):
    """A main head, one that runs for nothing, one that waits, and a parameter that does too."""

    def __init__(self, *, runs: int = 1, waits: int = 0, token: bool = False):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.aside = nn.ModuleList(nn.Linear(16, 4) for _ in range(runs))
        self.waiting = nn.ModuleList(nn.Linear(16, 4) for _ in range(waits))
        if token:
            self.token = nn.Parameter(torch.zeros(16))

    def forward(self, x):
        hidden = functional.gelu(self.body(x))
        return self.head(hidden), [head(hidden) for head in self.aside]


def loss(output, target):
    return functional.cross_entropy(output[0], target)


def test_heads_that_run_for_nothing_are_one_warning_at_the_loss(findings_of):
    (found,) = findings_of(Heads(runs=2), (X, CLASSES), loss, probe_steps=1)
    assert (found.rule, found.severity) == ("GS203", "warning")
    assert found.location.source == "return functional.cross_entropy(output[0], target)"
    assert found.modules == ("aside.0", "aside.1")
    assert found.message == "aside (4 parameters) runs, but the loss does not use it"


def two_terms(output, target):
    each = functional.cross_entropy(output[0], target, reduction="none")
    each = each + 0.1 * output[0].square().sum(1)
    return each.mean() / 2


def sum_of_a_model(output, target):
    return output[0].mean()


@pytest.mark.parametrize(
    ("loss_fn", "source"),
    [
        (two_terms, "each = each + 0.1 * output[0].square().sum(1)"),
        (sum_of_a_model, "return output[0].mean()"),
    ],
)
def test_the_line_that_adds_up_the_terms_is_told(findings_of, loss_fn, source):
    class Residual(Heads):
        def forward(self, x):
            output, aside = super().forward(x)
            return output + x[:, :4] * output, aside

    found = findings_of(Residual(), (X, CLASSES), loss_fn, probe_steps=1)
    assert only(found, "GS203").location.source == source


def test_head_that_never_runs_and_that_no_code_reads_is_a_warning(findings_of):
    (found,) = findings_of(Heads(runs=0, waits=1), (X, CLASSES), loss, probe_steps=1)
    assert (found.rule, found.severity) == ("GS203", "warning")
    assert found.message == "waiting (2 parameters) is never called, and no code reads it"
    assert found.location.source.startswith("self.waiting = ")


class Pretraining(nn.Module):
    """A model with a head that only its second method calls."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.reconstruction = nn.Linear(16, 8)

    def forward(self, x):
        return self.head(functional.gelu(self.body(x)))

    def reconstruct(self, x):
        return self.reconstruction(functional.gelu(self.body(x)))


class OfTasks(nn.Module):
    """A model that finds its heads by name."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head_of_tags, self.head_of_stages = nn.Linear(16, 4), nn.Linear(16, 3)

    def forward(self, x, task="tags"):
        return getattr(self, f"head_of_{task}")(functional.gelu(self.body(x)))


class OwnTransformer(nn.Transformer):
    """A model with a part that its base, in an installed library, may read."""

    def __init__(self):
        super().__init__(8, 2, 1, 1, 16, batch_first=True)
        self.projection = nn.Linear(8, 4)

    def forward(self, x):
        return super().forward(x, x).mean(1)


@pytest.mark.parametrize("model", [Pretraining, OfTasks, OwnTransformer])
def test_module_that_code_may_read_is_a_note(findings_of, model):
    x = X.reshape(16, 1, 8) if model is OwnTransformer else X

    def of_output(output, target):
        return functional.cross_entropy(output, target % output.shape[-1])

    found = findings_of(model(), (x, CLASSES), of_output, probe_steps=1)
    assert {(one.rule, one.severity) for one in found} == {("GS203", "note")}
    assert found[0].message.endswith("is never called")


def test_parameter_that_nothing_uses_is_a_warning(findings_of):
    (found,) = findings_of(Heads(runs=0, token=True), (X, CLASSES), loss, probe_steps=1)
    assert (found.severity, found.parameters) == ("warning", ("token",))


def test_head_that_the_optimizer_does_not_hold_is_a_note(findings_of):
    model = Heads()
    optimizer = torch.optim.Adam([*model.body.parameters(), *model.head.parameters()])
    (found,) = findings_of(model, (X, CLASSES), loss, optimizer=optimizer, probe_steps=1)
    assert found.severity == "note"


def test_frozen_head_is_not_unused(findings_of):
    model = Heads()
    model.aside.requires_grad_(False)
    assert findings_of(model, (X, CLASSES), loss, probe_steps=1) == ()


def test_head_whose_loss_is_only_logged_is_unused(findings_of):
    logged = []

    def logging_loss(output, target):
        logged.append(functional.cross_entropy(output[1][0], target).item())
        return functional.cross_entropy(output[0], target)

    (found,) = findings_of(Heads(), (X, CLASSES), logging_loss, probe_steps=1)
    assert (found.rule, found.severity) == ("GS203", "warning")


class Dropping(nn.Module):
    """Leaves one of its layers out, another one each time."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head, self.calls = nn.Linear(8, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.head(self.layers[self.calls % 2](x))


class Classifier(nn.Module):
    """A model with a class token and a head, of which another model may use the body."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(8))
        self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x + self.token))


class Pretrained(nn.Module):
    """Pre-trains the body of a classifier, which it calls itself."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Classifier(), nn.Linear(16, 8)

    def forward(self, x):
        return self.decoder(self.encoder.body(x))


class Features(Pretrained):
    """Calls the classifier for the features that a hook keeps."""

    def __init__(self):
        super().__init__()
        self.kept = []
        self.encoder.body.register_forward_hook(lambda body, given, got: self.kept.append(got))

    def forward(self, x):
        self.kept.clear()
        _ = self.encoder(x)
        return self.decoder(self.kept.pop())


class NoToken(Classifier):
    def forward(self, x):
        return self.head(self.body(x))


class Unassigned(Classifier):
    """Forgets to keep what the middle makes."""

    def __init__(self):
        super().__init__()
        self.middle = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        self.middle(x)
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "expected"),
    some_on_push(
        [
            (Pretrained, ("note", ("encoder.token", "encoder.head.weight", "encoder.head.bias"))),
            (Features, ("note", ("encoder.head.weight", "encoder.head.bias"))),
            (NoToken, ("warning", ("token",))),
            (Unassigned, ("warning", ("middle.0.weight", "middle.0.bias"))),
        ],
        {0, 1, 3},
    ),
)
def test_what_is_left_of_a_model_whose_layers_another_uses_is_a_note(findings_of, model, expected):
    torch.manual_seed(0)
    optimizer = torch.optim.Adam((made := model()).parameters())
    batch = (X, torch.ones(16, 8) if isinstance(made, Pretrained) else CLASSES)
    goal = functional.mse_loss if isinstance(made, Pretrained) else functional.cross_entropy
    found = only(findings_of(made, batch, goal, optimizer=optimizer), "GS203")
    assert (found.severity, found.parameters) == expected


def test_layer_that_is_only_sometimes_left_out_is_no_finding():
    target = target_from_objects(
        Dropping(), (X, CLASSES), functional.cross_entropy, optimizer=None, grad_output=None
    )
    seen = record(target, trial=Trial(probe_steps=2), eager=False, command="inspect")
    first = {stat.reach for stat in seen.parameter_stats if stat.step == 0}
    assert first == {"gradient", "none"}
    assert list(UnusedParameter().check(RuleContext(seen))) == []


def test_parts_of_layers_built_alike_are_one_finding(findings_of):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.forgotten = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return functional.gelu(self.used(x))

    model = nn.Sequential(Block(), Block(), Block(), nn.Linear(8, 4))
    (found,) = findings_of(model, (X, CLASSES), functional.cross_entropy, probe_steps=0)
    assert found.modules == ("0.forgotten", "1.forgotten", "2.forgotten")
    assert found.count == 6


def test_place_of_what_never_runs_is_its_definition(inspect_file, tmp_path):
    report = inspect_file(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))  # <-

    def forward(self, x):
        return self.used(x)

model = Net()
batch = torch.randn(4, 8)

def loss_fn(output, batch):
    return output.square().mean()
"""
    )
    found = only(report.findings, "GS203")
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert found.message == "scale requires grad but does not affect the loss"


DROPPING = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        better = torch.tanh(self.second(hidden))  # <-
        return RESULT

model = Model()
batch = torch.randn(4, 8)

def loss_fn(output, batch):
    output = output["out"] if isinstance(output, dict) else getattr(output, "out", output)
    return output.square().mean()  # <~
"""


@pytest.mark.parametrize(
    ("result", "mark"),
    some_on_push(
        [
            ("self.out(hidden)", "# <-"),
            ('{"out": self.out(hidden), "better": better}', "# <~"),
            ('{"out": self.out(hidden), "kept": [(better,)]}', "# <~"),
            ('{"out": self.out(hidden), "choice": better.argmax(-1)}', "# <~"),
            ('type("Result", (), {"out": self.out(hidden), "better": better})', "# <~"),
        ],
        {0, 1},
    ),
)
def test_place_is_the_call_only_where_the_model_drops_its_output(
    inspect_file, tmp_path, result, mark
):
    found = only(inspect_file(DROPPING.replace("RESULT", result)).findings, "GS203")
    assert found.severity == "warning"
    assert {found.location.line} == marked_lines(tmp_path / "model.py", mark)
    assert found.related[-1].source.startswith("self.first, self.second")
    assert ("in the forward" in found.remedy) == (mark == "# <-")


LOOPED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(3))

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return [head(hidden) for head in self.heads]

model = Model()
batch = torch.randn(4, 8)

def loss_fn(outputs, batch):
    total = 0.0
    for output in outputs:
        STATEMENT  # <-
    return total
"""


def test_loss_that_each_pass_of_a_loop_overwrites_is_an_error(inspect_file, tmp_path):
    text = LOOPED.replace("STATEMENT", "total = output.square().mean()")
    found = only(inspect_file(text).findings, "GS203")
    assert (found.severity, found.count) == ("error", 4)
    assert {found.location.line} == marked_lines(tmp_path / "model.py", "# <-")
    assert "each pass of the loop overwrites `total`" in found.message


def test_loss_that_a_loop_leaves_early_is_a_warning(inspect_file):
    """It may look for the first output that has a target."""
    statement = "total = output.square().mean()\n        break"
    found = only(inspect_file(LOOPED.replace("STATEMENT", statement)).findings, "GS203")
    assert found.severity == "warning"


def test_loss_that_a_loop_adds_up_is_fine(inspect_file):
    text = LOOPED.replace("STATEMENT", "total = total + output.square().mean()")
    assert "GS203" not in [finding.rule for finding in inspect_file(text).findings]
