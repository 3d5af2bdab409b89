import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.optimizing import Net, inspected
from tests.rules.watching import findings_of as findings_of_loop
from tests.rules.watching import findings_of_script


def found(model, optimizer=torch.optim.AdamW):
    return [f for f in inspected(optimizer, model).findings if f.rule == "GS208"]


def test_frozen_layer_is_one_note():
    model = Net()
    model.embed.requires_grad_(False)
    (finding,) = found(model)
    assert finding.severity == "note"
    assert finding.parameters == ("embed.weight", "embed.bias")
    assert "2 of 6 parameters" in finding.message and finding.message.endswith("embed")


def test_frozen_and_filtered_is_nothing():
    model = Net()
    model.embed.requires_grad_(False)
    assert found(model, lambda ps: torch.optim.SGD([p for p in ps if p.requires_grad], 0.1)) == []


def test_nothing_frozen_is_nothing():
    assert found(Net()) == []


@pytest.mark.parametrize("kind", [nn.Embedding, nn.Linear])
def test_fixed_table_of_positions_is_left_out(kind):
    class Positioned(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = kind(4, 6)
            self.table.requires_grad_(False)

        def forward(self, x):
            return super().forward(x + self.table.weight.sum())

    assert bool(found(Positioned())) == (kind is nn.Linear)


def test_optimizer_of_a_network_whose_turn_it_is_not_is_left_alone():
    model = Net()
    model.embed.requires_grad_(False)
    optimizer = torch.optim.SGD(model.embed.parameters(), 0.1)
    assert found(model, lambda _: optimizer) == []


STAYS_FROZEN = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
net = nn.Sequential()
net.body, net.head = nn.Linear(6, 8), nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def check(net, x):
    net.requires_grad_(False)
    value = {between}
    net.{part}requires_grad_(True)
    return value


for step in range({steps}):
    x = torch.randn(16, 6)
    loss = F.cross_entropy(net(x), torch.arange(16) % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 11:
        check(net, x)
"""


@pytest.mark.parametrize(
    ("between", "part", "steps", "expected"),
    some_on_push(
        [
            ("net(x).mean().item()", "head.", 20, ["error"]),
            ("net(x).mean().item()", "head.", 19, []),  # seven steps with a frozen body
            ("net(x).mean().item()", "", 20, []),
            ("None", "head.", 20, []),  # a phase that trains the head alone
        ],
        {0, 1},
    ),
)
def test_what_a_function_leaves_frozen_is_an_error(between, part, steps, expected, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STAYS_FROZEN.format(between=between, part=part, steps=steps))
    findings = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS208"]
    assert [one.severity for one in findings] == expected
    assert all(one.location.source == "net.head.requires_grad_(True)" for one in findings)
    assert all(one.step == 12 and "net.body" in one.message for one in findings)


def adversarial(steps, *, frozen_after=0, thaws=False, closure=False):
    """Train a generator against a judge that is frozen for the generator's steps."""
    torch.manual_seed(0)
    generator, judge = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
    kind = torch.optim.LBFGS if closure else torch.optim.SGD
    of_judge = kind(judge.parameters(), lr=0.01)
    for step in range(steps):
        fake = generator(torch.randn(16, 4))

        def distance(fake=fake):
            of_judge.zero_grad()
            loss = (judge(torch.randn(16, 6)) - 1).square().mean() + judge(
                fake.detach()
            ).square().mean()
            if loss.requires_grad:
                loss.backward()
            return loss

        if distance().requires_grad:
            of_judge.step(distance if closure else None)
        if step >= frozen_after:
            judge.requires_grad_(False)
        of_generator.zero_grad()
        (judge(fake) - 1).square().mean().backward()
        of_generator.step()
        if thaws:
            judge.requires_grad_(True)


@pytest.mark.parametrize(
    ("steps", "options", "expected"),
    some_on_push(
        [
            (12, {}, ["error"]),
            (8, {}, ["error"]),
            (7, {}, []),  # seven steps with a frozen judge
            (12, {"thaws": True}, []),
            (12, {"frozen_after": 1}, []),  # it learned for a while
            (12, {"closure": True}, []),  # one step of L-BFGS may be a whole stage
        ],
        {1, 2},
    ),
)
def test_network_that_is_frozen_after_one_step(steps, options, expected, tmp_path):
    findings = findings_of_loop(lambda: adversarial(steps, **options), tmp_path)
    found = [one for one in findings if one.rule == "GS208"]
    assert [one.severity for one in found] == expected
    assert all("judge, steps once" in one.message for one in found)


TABLE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.KIND.from_pretrained(torch.randn(9, 4)OPTIONS)
        self.out = nn.Linear(4, 2)

    def forward(self, tokens):
        return self.out(self.words(tokens))

model = Net()
batch = torch.randint(0, 9, (5, 3))

def loss_fn(output, batch):
    return output.square().mean()
"""


@pytest.mark.parametrize(
    ("kind", "options", "severities"),
    some_on_push(
        [
            ("Embedding", ", padding_idx=0", ["warning"]),
            ("Embedding", ", sparse=True", ["warning"]),
            ("Embedding", ", sparse=False", []),
            ("Embedding", "", []),
            ("Embedding", ", freeze=True, padding_idx=0", []),
            ("Embedding", ", freeze=False, padding_idx=0", []),
            ("EmbeddingBag", ", padding_idx=0", []),  # leaves the row out of the mean, too
        ],
        {0, 2, 6},
    ),
)
def test_table_frozen_by_default_with_an_option_for_gradients(
    inspect_file, kind, options, severities
):
    report = inspect_file(TABLE.replace("KIND", kind).replace("OPTIONS", options))
    found = [one for one in report.findings if one.rule == "GS208"]
    assert [one.severity for one in found] == severities
    assert all("from_pretrained" in one.location.source for one in found)


TABLES = """
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding.from_pretrained(table, OPTIONS) for table in tables
        )
        self.out = nn.Linear(8, 1)

    def forward(self, tokens):
        return self.out(torch.cat([one(tokens) for one in self.tables], 1))

net = Net([torch.randn(9, 4), torch.randn(9, 4)])
groups = [{"params": net.tables.parameters(), "lr": 0.01}, {"params": net.out.parameters()}]
optimizer = torch.optim.SGD(GROUPS, lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    net(torch.randint(0, 9, (16,))).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("options", "groups", "expected"),
    [
        ("sparse=False", "groups", ["warning"]),
        ("freeze=True", "groups", []),
        ("freeze=False", "groups", []),
        ("sparse=False", "net.parameters()", []),  # nobody chose a rate for the tables
    ],
)
def test_tables_of_one_statement_that_share_a_group(options, groups, expected, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TABLES.replace("OPTIONS", options).replace("GROUPS", groups))
    findings = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS208"]
    assert [one.severity for one in findings] == expected
    assert all(one.parameters == ("net.tables.0.weight", "net.tables.1.weight") for one in findings)
