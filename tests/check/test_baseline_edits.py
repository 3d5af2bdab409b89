"""A baseline of real files that people go on to edit."""

import pytest

from gradscope.check.baseline import Baseline, applied, updated
from gradscope.check.results import CheckResult, Run, target_result
from tests.nightly import some_on_push
from tests.rules.inspecting import report_of_file

TEXT = """\
import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        left = self.left(x).detach()
        right = self.right(x)
        return self.head(left + right)


def build_model():
    torch.manual_seed(0)
    return Pair()


def build_batch():
    return torch.randn(16, 4), torch.randint(0, 2, (16,))


def loss_fn(output, target):
    return nn.functional.cross_entropy(output, target)
"""
LINE = "        left = self.left(x).detach()\n"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check a text in a checkout, from a folder of it."""

    def run(text, checkout="one", cwd=".", file="model.py"):
        path = tmp_path / checkout / file
        path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / checkout / ".git").mkdir(exist_ok=True)
        folder = tmp_path / checkout / cwd
        folder.mkdir(exist_ok=True)
        path.write_text(text)
        monkeypatch.chdir(folder)
        report = report_of_file(path)
        judged = Run(recording=report.recording, verdict=report.rules)
        target = target_result(str(path), [judged])
        return CheckResult(version="0", command="gradscope check", targets=(target,))

    return run


@pytest.fixture
def counted(check):
    """The lines of what counts in a text, where the findings in TEXT are known."""
    known = updated(Baseline(), check(TEXT))
    assert [(entry.rule, entry.code) for entry in known.entries] == [("GS201", LINE.strip())]

    def lines(text, **where):
        (target,) = applied(check(text, **where), known, 2.0, is_strict=False).targets
        return [item.finding.location.source for item in target.counted()]

    return lines


EDITS = {
    "nothing": (LINE, LINE),
    "lines above": (LINE, f"        x = x * 2\n\n        # before\n{LINE}"),
    "docstring": ("import torch\n", '"""A pair.\n\nIt has two halves.\n"""\n\nimport torch\n'),
    "comment": (LINE, LINE.replace("\n", "  # TODO: why?\n")),
    "deeper": (LINE, f"        with torch.enable_grad():\n    {LINE}"),
    "over lines": (
        LINE,
        "        left = (\n            self.left(x)\n            .detach()\n        )\n",
    ),
    "seed": ("manual_seed(0)", "manual_seed(12)"),
    "larger": (
        "nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)",
        "nn.Linear(4, 16), nn.Linear(4, 16), nn.Linear(16, 2)",
    ),
    "batch": ("(16, 4)", "(8, 4)"),
}


@pytest.mark.parametrize(
    "edit", some_on_push([pytest.param(edit) for edit in EDITS.values()], 3), ids=EDITS
)
def test_a_known_finding_stays_known_through_edits(counted, edit):
    old, new = edit
    text = TEXT.replace(old, new)
    text = text.replace("(0, 2, (16,))", "(0, 2, (8,))") if "(8, 4)" in text else text
    assert counted(text) == []


def test_it_stays_known_in_another_checkout_and_from_another_folder(counted):
    assert counted(TEXT, checkout="two") == []
    assert counted(TEXT, cwd="docs") == []
    assert counted(TEXT, file="other.py") == [LINE.strip()]


def test_the_same_mistake_on_another_line_counts(counted):
    second = "        right = self.right(x).detach()\n"
    both = TEXT.replace("        right = self.right(x)\n", second)
    assert counted(both) == [second.strip()]
    moved = both.replace(LINE, LINE.replace(".detach()", ""))
    assert counted(moved) == [second.strip()]


DYING = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, x):
        x = self.first(x)
        x = x.relu()
        x = self.second(x)
        x = x.relu()
        return self.head(x)


def build_model():
    torch.manual_seed(0)
    model = Net()
    nn.init.constant_(model.first.bias[:56], -9)
    return model


def build_batch():
    return torch.randn(128, 8), torch.randint(0, 2, (128,))


def loss_fn(output, target):
    return nn.functional.cross_entropy(output, target)
"""


@pytest.mark.nightly
def test_two_lines_that_read_the_same_are_two_places(check):
    known = updated(Baseline(), check(DYING))
    assert [entry.rule for entry in known.entries] == ["GS105"]

    def counted(text):
        (target,) = applied(check(text), known, 2.0, is_strict=False).targets
        return [item.finding.modules for item in target.counted()]

    first = "    nn.init.constant_(model.first.bias[:56], -9)\n"
    second = first.replace("first", "second")
    assert counted(DYING) == []
    assert counted(DYING.replace(first, first + second)) == [("second",)]
    assert counted(DYING.replace(first, second)) == [("second",)]
