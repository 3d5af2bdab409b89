"""A graph that is gone through twice is reported where it was made (GS502)."""

import pytest

from gradscope.target.options import Trial
from tests.nightly import some_on_push
from tests.rules.inspecting import only
from tests.rules.raising import HEAD, check, marked

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
    assert (finding.severity, finding.step) == ("error", 1)
    kind = "Stateful" if "Stateful" in text else "Cached"
    assert f"{kind}.kept is carried over" in finding.message
    assert "the training loop must reset or detach" in finding.message
    assert [finding.location.source] == marked(text, "# <-")
    assert {position.source for position in finding.related} == set(marked(text, "# also"))
    assert {row.reach for row in report.parameters} == {"gradient"}
    assert report.summary.loss is not None


@pytest.mark.parametrize(
    "method", some_on_push(["reset_hidden", "init_hidden_state", "detach_state", "reset"], {0, 2})
)
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


TENDED = {
    "a loop detaches it": """
def train():
    for _ in range(3):
        loss_fn(model(batch[0]), batch[1]).backward()
        model.kept = model.kept.detach()
""",
    "a loop drops it by its name": """
def train():
    for _ in range(3):
        loss_fn(model(batch[0]), batch[1]).backward()
        setattr(model, "kept", None)
""",
    "a method drops it": """
class Started(Stateful):
    def start_sequence(self):
        self.kept = None
model = Started()
""",
    "the forward drops it when told to": """
class Told(Stateful):
    def forward(self, x, is_first=False):
        if is_first:
            self.kept = None
        hidden = self.a(x) if self.kept is None else self.a(x) + self.kept
        self.kept = torch.tanh(hidden)
        return self.b(self.kept)
model = Told()
""",
    "the forward detaches it every fourth time": """
class Truncated(Stateful):
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.kept is not None and self.calls % 4 == 0:
            self.kept = self.kept.detach()
        hidden = self.a(x) if self.kept is None else self.a(x) + self.kept
        self.kept = torch.tanh(hidden)
        return self.b(self.kept)
model = Truncated()
""",
}


@pytest.mark.parametrize("text", some_on_push(TENDED.values(), 3), ids=TENDED)
def test_what_a_training_loop_may_let_go_of_is_a_warning(inspect_file, text):
    finding = only(inspect_file(HEAD + KEPT["a hidden state"] + text).findings, "GS502")
    assert finding.severity == "warning"
    assert "unless the training loop resets or detaches it" in finding.message


def test_a_loop_in_a_file_beside_the_model_may_let_go_of_it(inspect_file, tmp_path):
    text = HEAD + KEPT["a hidden state"]
    (tmp_path / "other.py").write_text("def run(robot):\n    robot.kept = None\n")
    assert only(inspect_file(text).findings, "GS502").severity == "error"
    (tmp_path / "train.py").write_text("import model\n\nmodel.model.kept = None\n")
    assert only(inspect_file(text).findings, "GS502").severity == "warning"


UNRELATED = """
class Robot:
    def reset_arm(self):
        self.kept = None
def show(net):
    kept = net.b.weight
    return kept.detach()
"""


def test_other_things_of_that_name_do_not_let_go_of_it(inspect_file):
    finding = only(inspect_file(HEAD + KEPT["a hidden state"] + UNRELATED).findings, "GS502")
    assert finding.severity == "error"


GLOBAL = """
past = []
def compute_loss(model, batch):
    output = model(batch[0])  # <-
    drift = sum(((output - old) ** 2).mean() for old in past)
    past.append(output)
    return F.mse_loss(output, batch[1]) + drift
"""


@pytest.mark.parametrize(
    ("loop", "severity"), [("", "error"), ("def epoch():\n    past.clear()\n", "warning")]
)
def test_a_global_that_keeps_outputs(inspect_file, loop, severity):
    finding = only(inspect_file(HEAD + GLOBAL + loop).findings, "GS502")
    assert finding.severity == severity
    assert "past is carried over" in finding.message


@pytest.mark.parametrize("reset", ["", "    def reset_hidden(self): ...\n"])
def test_a_training_step_that_failed_is_an_error(inspect_file, reset):
    text = KEPT["a hidden state"].replace("Stateful(Net):", f"Stateful(Net):\n{reset}")
    loop = TENDED["a loop detaches it"]
    finding = only(inspect_file(HEAD + text + loop, trial=Trial(steps=2)).findings, "GS502")
    assert (finding.severity, finding.step) == ("error", 1)


MEMORY = """
from collections import deque
class Remembering(Net):
    def __init__(self):
        super().__init__()
        self.kept = deque(maxlen=4)
    def forward(self, x):
        output = self.b(self.a(x))
        mixed = output + sum(self.kept) if self.kept else output
        self.kept.append(output)
        return mixed
model, loss_fn = Remembering(), F.mse_loss
"""


def test_a_memory_of_outputs_in_a_deque_is_known(inspect_file):
    finding = only(inspect_file(HEAD + MEMORY).findings, "GS502")
    assert finding.severity == "error"
    assert "Remembering.kept is carried over" in finding.message
    assert finding.remedy.startswith("recreate self.kept in every forward")
