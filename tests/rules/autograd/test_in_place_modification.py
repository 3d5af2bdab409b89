"""A write over what backward needs is reported at the write (GS503)."""

import pytest

from tests.nightly import some_on_push
from tests.rules.raising import HEAD, check

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


@pytest.mark.parametrize("text", some_on_push(IN_PLACE.values(), 3), ids=IN_PLACE)
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
    assert "rejects" in finding.message


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
