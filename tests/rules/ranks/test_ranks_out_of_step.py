"""Ranks that make different passes."""

from tests.rules.ranks.running import found

LEAVE = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    if rank == 1 and step == 12:
        break  # FAULT
    loss.backward()
    optimizer.step()
"""


def test_a_rank_that_leaves_the_loop_early_is_found(jobs, tmp_path):
    assert found(jobs, LEAVE, tmp_path, "GS806").ranks
