"""GS204 on recurrent cells whose every call starts from zeros, and on healthy loops."""

import pytest
import torch
from torch import nn

from tests.rules import watching
from tests.rules.inspecting import marked_lines

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
cell, out = nn.CELL(4, 16), nn.Linear(16, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()], lr=1e-3)


def zeros():
    state = torch.zeros(8, 16)
    return (state, state) if isinstance(cell, nn.LSTMCell) else state


for _ in range(5):
    x = torch.randn(8, TIMES, 4)
    state, outputs = zeros(), []
    for t in range(TIMES):
        state = cell(x[:, t], GIVEN)  # here
        outputs.append(out(state[0] if isinstance(cell, nn.LSTMCell) else state))
    loss = (torch.cat(outputs, 1) - x[:, :, 0].cumsum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def told(tmp_path, cell, given, times=6):
    script = tmp_path / "train.py"
    text = SCRIPT.replace("CELL", cell, 1).replace("GIVEN", given).replace("TIMES", str(times))
    script.write_text(text)
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS204"]
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
    return found


CELLS = ["GRUCell", "LSTMCell", "RNNCell"]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("given", ["zeros()", "None"])
def test_a_state_that_is_made_anew_in_each_step_is_an_error(tmp_path, cell, given):
    (found,) = told(tmp_path, cell, given)
    assert found.severity == "error"
    assert "each of the 6 calls of the cell gets a hidden state of zeros" in found.message


@pytest.mark.parametrize("cell", CELLS)
def test_a_state_that_is_handed_on_is_fine(tmp_path, cell):
    assert not told(tmp_path, cell, "state")


def test_a_single_call_is_no_loop(tmp_path):
    assert not told(tmp_path, "GRUCell", "state", times=1)


@pytest.mark.parametrize("cell", CELLS)
def test_a_state_of_zeros_gives_the_hidden_weights_no_gradient(cell):
    # What the rule says, by torch's own cell.
    layer = getattr(nn, cell)(4, 16)
    result = layer(torch.randn(8, 4))
    (result[0] if isinstance(result, tuple) else result).square().sum().backward()
    assert not layer.weight_hh.grad.any()
    assert layer.weight_ih.grad.any()


@pytest.mark.parametrize(("steps", "expected"), [(1, []), (3, ["warning"])])
def test_a_state_of_zeros_is_no_finding_after_a_single_step(steps, expected, tmp_path):
    def train():
        torch.manual_seed(0)
        layer, head = nn.RNN(4, 8, batch_first=True), nn.Linear(8, 2)
        optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], 1e-3)
        for _ in range(steps):
            output, _ = layer(torch.randn(6, 1, 4))
            loss = head(output[:, -1]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    found = watching.findings_of(train, tmp_path)
    assert [one.severity for one in found if one.rule == "GS204"] == expected
