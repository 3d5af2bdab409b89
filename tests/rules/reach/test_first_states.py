"""GS216 on the state from which a decoder starts, while attention trains its encoder, too."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules.watching import findings_of

X = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(4) % 3


def told(folder, cut, *, tokens=X):
    """Train an encoder and a decoder that attends to it, with a choice of its first state."""
    torch.manual_seed(0)
    encoder, decoder = nn.GRU(6, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
    head = nn.Linear(8, 3)
    parts = nn.ModuleList([encoder, decoder, head])
    kept = torch.zeros(1, 4, 8)

    def train():
        nonlocal kept
        optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
        for _ in range(6):
            memory, state = encoder(tokens)
            context = memory.mean(dim=1, keepdim=True)
            output, last = decoder(context, cut(state, kept))
            optimizer.zero_grad()
            functional.cross_entropy(head(output[:, -1]), Y).backward()
            optimizer.step()
            kept = last.data

    return [one for one in findings_of(train, folder) if one.rule == "GS216"]


def test_state_that_is_passed_on_by_its_data_is_a_warning(tmp_path):
    (found,) = told(tmp_path, lambda state, _: state.data)
    assert found.severity == "warning"
    assert found.location.source == "(found,) = told(tmp_path, lambda state, _: state.data)"
    assert len(found.parameters) == 4  # those of the encoder


def of_the_last_batch(_, kept):
    """Return the decoder's own last state: backpropagation through time is truncated there."""
    return kept


@pytest.mark.parametrize(
    "cut",
    [
        lambda state, _: state,
        lambda state, _: state.detach(),
        lambda state, _: torch.zeros_like(state),
        of_the_last_batch,
    ],
    ids=["itself", "detached on purpose", "zeros", "of the last batch"],
)
def test_other_first_states_are_healthy(cut, tmp_path):
    assert told(tmp_path, cut) == []
