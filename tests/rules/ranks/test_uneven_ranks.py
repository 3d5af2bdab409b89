"""Ranks of unequal counts under a mean loss."""

import pytest

from tests.rules.ranks.running import found

UNEVEN_ROWS = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch(4 if rank else 24)
    optimizer.zero_grad()
    logits = model(x)
    loss = cross_entropy(logits, y)  # FAULT
    loss.backward()
    optimizer.step()
"""


MASK_MEAN = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    mask = (torch.arange(16) < (4 if rank else 15)).float()
    optimizer.zero_grad()
    each = cross_entropy(model(x), y, reduction="none")
    loss = (each * mask).sum() / mask.sum()  # FAULT
    loss.backward()
    optimizer.step()
"""


def test_ranks_with_unequal_rows_are_found(jobs, tmp_path):
    assert found(jobs, UNEVEN_ROWS, tmp_path, "GS803").ranks


@pytest.mark.nightly
def test_a_mean_over_each_ranks_own_mask_is_found(jobs, tmp_path):
    assert found(jobs, MASK_MEAN, tmp_path, "GS803").ranks
