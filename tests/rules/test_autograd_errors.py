"""Exceptions of autograd's become findings at the lines that cause them (GS501 to GS506)."""

import json

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import gradscope
from gradscope.errors import UserCodeError
from gradscope.recording.evidence.autograd_error import AutogradErrorRecord
from tests.rules.inspecting import only

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
        self.kept = None

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

model = Net()
batch = torch.randn(3, 4), torch.randn(3, 2)
"""


def marked(text: str, mark: str) -> list[str]:
    """Return the lines that end with a mark, as a finding shows them."""
    return [line.strip() for line in text.splitlines() if line.endswith(mark)]


def check(inspect_file, code: str, text: str, **chosen: object):
    """Inspect a target; the finding points to the line `# <-`, and relates to those `# also`."""
    whole = HEAD + text
    report = inspect_file(whole, **chosen)
    finding = only(report.findings, code)
    assert {one.rule for one in report.findings} == {code}
    wanted = marked(whole, "# <-")
    assert [finding.location.source] == wanted if wanted else finding.location is None
    assert {place.source for place in finding.related} == set(marked(whole, "# also"))
    return finding


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


TWICE = {
    "its own backward, then gradscope's": """
def compute_loss(model, batch):
    loss = F.mse_loss(model(batch[0]), batch[1])  # <-
    loss.backward()  # also
    return loss
""",
    "two losses of one trunk": """
class Two(Net):
    def forward(self, x):
        return torch.tanh(self.a(x))  # <-
model = Two()
def compute_loss(model, batch):
    hidden = model(batch[0])
    first = hidden.square().mean()
    second = model.b(hidden).square().mean()
    first.backward()  # also
    second.backward()  # also
    return second
""",
}


@pytest.mark.parametrize("text", TWICE.values(), ids=TWICE)
def test_backward_twice_points_to_the_part_that_is_used_up(inspect_file, text):
    finding = check(inspect_file, "GS502", text)
    assert finding.severity == "error"
    assert "second time" in finding.message


KEPT = {
    "a hidden state": """
class Stateful(Net):
    def forward(self, x):
        hidden = self.a(x)
        if self.kept is not None:
            hidden = hidden + self.kept  # also
        self.kept = torch.tanh(hidden)  # <-
        return self.b(self.kept)
model, loss_fn = Stateful(), F.mse_loss
""",
    "a cached product": """
class Cached(Net):
    def forward(self, x):
        if self.kept is None:
            self.kept = self.a.weight @ self.a.weight.T  # <-
        return self.b(self.a(x) @ self.kept)  # also
model, loss_fn = Cached(), F.mse_loss
""",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_is_carried_over_fails_in_the_second_step(inspect_file, text):
    report = inspect_file(HEAD + text)
    finding = only(report.findings, "GS502")
    assert (finding.severity, finding.step) == ("warning", 1)
    assert [finding.location.source] == marked(text, "# <-")
    assert {place.source for place in finding.related} == set(marked(text, "# also"))
    assert {row.reach for row in report.parameters} == {"gradient"}
    assert report.summary.loss is not None


@pytest.mark.parametrize("method", ["reset_hidden", "init_hidden_state", "detach_state", "reset"])
def test_a_model_that_can_be_reset_gets_a_note(inspect_file, method):
    text = KEPT["a hidden state"].replace(
        "Stateful(Net):", f"Stateful(Net):\n    def {method}(self): ..."
    )
    finding = only(inspect_file(HEAD + text).findings, "GS502")
    assert finding.severity == "note"
    assert f"unless {method}() is called" in finding.message


def test_what_is_carried_over_detached_is_fine(inspect_file):
    text = """
class Stateful(Net):
    def forward(self, x):
        hidden = torch.tanh(self.a(x) + (0 if self.kept is None else self.kept))
        self.kept = hidden.detach()
        return self.b(hidden)
model, loss_fn = Stateful(), F.mse_loss
"""
    assert "GS502" not in {one.rule for one in inspect_file(HEAD + text).findings}


IN_PLACE = {
    "operator": """
class Bad(Net):
    def forward(self, x):
        hidden = torch.sigmoid(self.a(x))  # also
        hidden += 1  # <-
        return self.b(hidden)
model, loss_fn = Bad(), F.mse_loss
""",
    "elements": """
class Bad(Net):
    def forward(self, x):
        hidden = torch.tanh(self.a(x))
        output = self.b(hidden)  # also
        hidden[:, 0] = 0  # <-
        return output
model, loss_fn = Bad(), F.mse_loss
""",
    "option": """
class Bad(Net):
    def forward(self, x):
        hidden = torch.exp(self.a(x))  # also
        return self.b(F.relu(hidden, inplace=True))  # <-
model, loss_fn = Bad(), F.mse_loss
""",
    "through a view": """
class Bad(Net):
    def forward(self, x):
        hidden = torch.exp(self.a(x))  # also
        hidden.view(-1).mul_(2)  # <-
        return self.b(hidden)
model, loss_fn = Bad(), F.mse_loss
""",
    "through detach": """
class Bad(Net):
    def forward(self, x):
        hidden = torch.exp(self.a(x))  # also
        hidden.detach().clamp_(max=1)  # <-
        return self.b(hidden)
model, loss_fn = Bad(), F.mse_loss
""",
    "among harmless writes": """
class Bad(Net):
    def forward(self, x):
        table = torch.zeros(3, 8)
        table += 1
        table[0] = 2
        scores = self.a(x)
        scores += table
        hidden = torch.softmax(scores, -1)  # also
        other = torch.relu(hidden) + 1
        other *= 2
        hidden *= 0.5  # <-
        other -= 1
        return self.b(hidden + other)
model, loss_fn = Bad(), F.mse_loss
""",
    "weights, in its own backward": """
def compute_loss(model, batch):
    hidden = torch.tanh(model.a(batch[0]))
    loss = model.b(hidden).square().mean()  # also
    with torch.no_grad():
        model.b.weight.mul_(0.9)  # <-
    loss.backward()  # also
    return loss
""",
    "an optimizer's step between": """
second = torch.optim.SGD(model.parameters(), lr=0.1)
def compute_loss(model, batch):
    hidden = torch.tanh(model.a(batch[0]))
    loss = model.b(hidden).square().mean()  # also
    hidden.sum().backward(retain_graph=True)
    model.b.weight.grad = torch.ones_like(model.b.weight)
    second.step()  # <-
    return loss
""",
}


@pytest.mark.parametrize("text", IN_PLACE.values(), ids=IN_PLACE)
def test_a_write_in_place_points_to_the_write(inspect_file, text):
    finding = check(inspect_file, "GS503", text)
    assert finding.severity == "error"
    assert "overwrites what" in finding.message


REFUSED = {
    "a leaf": """
class Bad(Net):
    def forward(self, x):
        self.a.weight += 1  # <-
        return super().forward(x)
model, loss_fn = Bad(), F.mse_loss
""",
    "one of several views": """
class Bad(Net):
    def forward(self, x):
        left, right = self.a(x).chunk(2, -1)
        left += 1  # <-
        return left @ right.T
model = Bad()
loss_fn = lambda output, target: output.mean()
""",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_refused_write_points_to_the_write(inspect_file, text):
    finding = check(inspect_file, "GS503", text)
    assert "refuses" in finding.message


def test_harmless_writes_are_no_finding(inspect_file):
    text = """
class Fine(Net):
    def forward(self, x):
        hidden = self.a(x)
        hidden += 1
        hidden[:, 0] = 0
        hidden = F.relu(hidden, inplace=True)
        return self.b(hidden)
model, loss_fn = Fine(), F.mse_loss
"""
    assert "GS503" not in {one.rule for one in inspect_file(HEAD + text).findings}


NON_SCALAR = {
    "no reduction": """
def loss_fn(output, target):
    return F.mse_loss(output, target, reduction="none")  # <-
""",
    "a mean over one dimension": """
def compute_loss(model, batch):
    error = (model(batch[0]) - batch[1]).square()
    return error.mean(-1)  # <-
""",
    "its own backward": """
def compute_loss(model, batch):
    error = (model(batch[0]) - batch[1]).square()  # <-
    error.backward()  # also
    return error.mean()
""",
}


@pytest.mark.parametrize("text", NON_SCALAR.values(), ids=NON_SCALAR)
def test_a_loss_of_many_numbers_points_to_what_made_it(inspect_file, text):
    finding = check(inspect_file, "GS504", text)
    assert "of shape [3" in finding.message


def test_one_element_is_a_scalar(inspect_file):
    text = "def loss_fn(output, target): return F.mse_loss(output, target).view(1, 1)\n"
    assert not inspect_file(HEAD + text).findings


FUNCTION = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        {body}

class Uses(Net):
    def forward(self, x):
        return self.b(Function.apply(self.a(x)))  # also
model, loss_fn = Uses(), F.mse_loss
"""

IN_BACKWARD = {
    "a wrong shape": FUNCTION.format(body="return grad[:, :3]  # <-"),
    "too many gradients": FUNCTION.format(body="return grad, grad  # <-"),
    "its code raises": FUNCTION.format(body="return grad @ ctx.saved_tensors[0]  # <-"),
    "a hook": """
def check_gradient(gradient):
    assert gradient.isnan().any()  # <-

class Hooked(Net):
    def forward(self, x):
        hidden = torch.tanh(self.a(x))  # also
        hidden.register_hook(check_gradient)
        return self.b(hidden)
model, loss_fn = Hooked(), F.mse_loss
""",
}


@pytest.mark.parametrize("text", IN_BACKWARD.values(), ids=IN_BACKWARD)
def test_an_exception_in_backward_points_to_the_line_that_raised(inspect_file, text):
    finding = check(inspect_file, "GS506", text)
    assert finding.message.startswith("backward raised ")


# What is left of the report


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.exp(self.linear(x))
        hidden += 1
        return hidden


def test_the_report_holds_the_structure_and_no_gradient():
    model = Broken()
    report = gradscope.inspect(model, torch.randn(2, 4), lambda y: y.sum())
    assert {node.operation for node in report.recording.nodes} >= {"ExpBackward0", "AddBackward0"}
    assert all(row.grad is None and row.reach == "none" for row in report.parameters)
    assert report.recording.parameter_stats == ()
    assert json.loads(report.to_json())["findings"][0]["rule"] == "GS503"
    assert model.linear.weight.grad is None
    assert any("RuntimeError" in note.reason for note in report.skipped)
    assert all("no such examination" not in skipped.reason for skipped in report.rules.skipped)


def test_the_recording_keeps_the_error(tmp_path):
    report = gradscope.inspect(Broken(), torch.randn(2, 4), lambda y: y.sum())
    report.save(tmp_path / "broken.gradscope")
    from gradscope.recording.store import load_recording

    again = load_recording(tmp_path / "broken.gradscope")
    assert again.evidence_of(AutogradErrorRecord) == report.recording.evidence_of(
        AutogradErrorRecord
    )


def test_other_exceptions_of_the_forward_are_raised():
    class Raises(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :1])

    with pytest.raises(UserCodeError, match="forward failed"):
        gradscope.inspect(Raises(4, 4), torch.randn(2, 4), F.mse_loss)
