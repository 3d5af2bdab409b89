"""A graph that is gone through twice is reported where it was made (GS502)."""

import pytest

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
