"""Backward passes that are reduced for nothing."""

from tests.rules.ranks.running import found

SYNC_LATE = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = batch(8)
        loss = cross_entropy(model(x), y) / 4  # FAULT
        if micro < 3:
            with model.no_sync():
                loss.backward()
        else:
            loss.backward()
    optimizer.step()
"""


def test_no_sync_around_backward_alone_is_found(jobs, tmp_path):
    assert found(jobs, SYNC_LATE, tmp_path, "GS810").ranks
