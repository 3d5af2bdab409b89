"""A loss without a graph is reported at the line that cut it (GS501)."""

from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from tests.rules.inspecting import only
from tests.rules.raising import HEAD, check
from tests.rules.watching import findings_of, recording_of_script

NO_GRAPH = {
    "detached": """
def loss_fn(output, target):
    return F.mse_loss(output.detach(), target)  # <-
""",
    "data": """
def loss_fn(output, target):
    error = output.data - target  # <-
    return error.square().mean()
""",
    "written row by row": """
def loss_fn(output, target):
    kept = torch.zeros(output.shape)
    for row in range(len(output)):
        kept[row] = output[row].data  # <-
    return F.mse_loss(kept, target)
""",
    "written under no_grad": """
def loss_fn(output, target):
    kept = torch.zeros(output.shape)
    with torch.no_grad():  # <-
        kept[:] = output  # also
    return F.mse_loss(kept, target)
""",
    "argmax": """
def loss_fn(output, target):
    chosen = output.argmax(-1).float()  # <-
    return (chosen - target[:, 0]).abs().mean()
""",
    "rebuilt from a number": """
def loss_fn(output, target):
    value = F.mse_loss(output, target).item()  # <-
    return torch.tensor(value)
""",
    "rebuilt from tensors": """
def loss_fn(output, target):
    terms = [F.mse_loss(output, target), output.abs().mean()]
    return torch.tensor(terms).sum()  # <-
""",
    "by numpy": """
def loss_fn(output, target):
    error = output.detach().numpy() - target.numpy()  # <-
    return torch.from_numpy(error).square().mean()
""",
    "no_grad around all": """
def compute_loss(model, batch):
    with torch.no_grad():  # <-
        output = model(batch[0])  # also
        return F.mse_loss(output, batch[1])
""",
    "no_grad around the loss": """
def compute_loss(model, batch):
    output = model(batch[0])
    with torch.no_grad():  # <-
        loss = F.mse_loss(output, batch[1])  # also
    return loss
""",
    "decorated": """
@torch.no_grad()
def evaluate(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])  # also

def compute_loss(model, batch):
    return evaluate(model, batch)  # <-
""",
    "inference mode": """
def compute_loss(model, batch):
    with torch.inference_mode():
        output = model(batch[0])  # <-
        return F.mse_loss(output, batch[1])
""",
    "its own backward": """
def compute_loss(model, batch):
    output = model(batch[0]).detach()  # <-
    loss = F.mse_loss(output, batch[1])
    loss.backward()  # also
    return loss
""",
    "in the model": """
class Cut(Net):
    def forward(self, x):
        return super().forward(x).detach()  # <-
model = Cut()
loss_fn = F.mse_loss
""",
    "requires_grad_ on the loss": """
def loss_fn(output, target):
    loss = F.mse_loss(output.detach(), target)  # <-
    return loss.requires_grad_()
""",
    "a new tensor that requires grad": """
def loss_fn(output, target):
    loss = F.mse_loss(output, target)
    return torch.tensor(loss.item(), requires_grad=True)  # <-
""",
}


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("text", NO_GRAPH.values(), ids=NO_GRAPH)
def test_a_loss_without_a_graph_points_to_what_cut_it(inspect_file, text):
    finding = check(inspect_file, "GS501", text)
    assert finding.severity == "error"
    assert "no graph" in finding.message


def test_a_frozen_model_points_to_where_it_is_made(inspect_file):
    report = inspect_file(HEAD + "model.requires_grad_(False)\nloss_fn = F.mse_loss\n")
    finding = only(report.findings, "GS501")
    assert finding.location.source == "self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)"
    assert "none of the 4 parameters requires grad" in finding.message


def test_frozen_parts_are_no_finding(inspect_file):
    report = inspect_file(HEAD + "model.a.requires_grad_(False)\nloss_fn = F.mse_loss\n")
    assert "GS501" not in {one.rule for one in report.findings}


def findings_of_run(loss_of, folder):
    def loop():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        adam = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(12):
            adam.zero_grad()
            loss_of(model(torch.randn(16, 4)), torch.arange(16) % 3, step).backward()
            adam.step()

    return [one for one in findings_of(loop, folder) if one.rule == "GS501"]


def test_a_run_whose_losses_require_grad_by_themselves_points_to_what_cut_them(tmp_path):
    def error_rate(output, target, _step):
        wrong = (output.argmax(1) != target).float()  # argmax has no derivative
        return wrong.mean().requires_grad_()

    (found,) = findings_of_run(error_rate, tmp_path)
    assert found.severity == "error"
    assert found.location.source.startswith("wrong = (output.argmax(1) != target)")


def test_a_batch_without_targets_may_have_a_constant_loss(tmp_path):
    def loss_of(output, target, step):
        if step % 4 == 0:
            return torch.zeros((), requires_grad=True)
        return functional.cross_entropy(output, target)

    assert findings_of_run(loss_of, tmp_path) == []


FREEZING = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step == START:
        model.PARTrequires_grad_(False)
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("start", [0, 2])
def test_a_script_that_freezes_all_is_told_the_line(tmp_path, start):
    (found,) = told_of_freezing(tmp_path, start, "")
    assert "none of the 4 parameters requires grad" in found.message
    assert found.location.source == "model.requires_grad_(False)"


def test_a_script_that_freezes_a_part_has_a_graph(tmp_path):
    assert not told_of_freezing(tmp_path, 0, "[0].")


def told_of_freezing(tmp_path, start, part):
    script = tmp_path / "train.py"
    text = FREEZING.replace("START", str(start)).replace("model.PART", f"model{part or '.'}")
    script.write_text(text)
    with suppress(RuntimeError):
        recording_of_script(script, tmp_path)
    recording = load_recording(tmp_path / "run.gradscope")
    return [one for one in judge(recording).findings if one.rule == "GS501"]
