"""Samplers that give the same order in every epoch."""

from tests.rules.ranks.running import found

NO_EPOCH = """
g = torch.Generator().manual_seed(3)
inputs = torch.randn(128, 16, generator=g)
data = TensorDataset(inputs, (inputs @ teacher).argmax(1))
sampler = DistributedSampler(data)  # FAULT
loader = DataLoader(data, batch_size=16, sampler=sampler)
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def test_a_sampler_without_set_epoch_is_found(jobs, tmp_path):
    assert found(jobs, NO_EPOCH, tmp_path, "GS809").ranks
