"""Ranks that train on the same batches."""

from tests.rules.ranks.running import found

SAME_SEED = """
draws = torch.Generator().manual_seed(100)  # FAULT
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_equal_seeds_of_the_data_are_found(jobs, tmp_path):
    assert found(jobs, SAME_SEED, tmp_path, "GS807").ranks
