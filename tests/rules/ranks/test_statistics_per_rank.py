"""Batch normalization with the statistics of each rank."""

from tests.rules.ranks.running import found

SMALL_BN = """
class Norm(Net):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())  # FAULT
model = DDP(Norm())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch(2)
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_few_rows_per_rank_are_found(jobs, tmp_path):
    assert found(jobs, SMALL_BN, tmp_path, "GS811").ranks
