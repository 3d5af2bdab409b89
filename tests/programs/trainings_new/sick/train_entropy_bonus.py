import torch
from torch import nn


def entropy(logits):
    p = logits.softmax(-1)
    return -(p * p.log()).sum(-1)


torch.manual_seed(53)
net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
for step in range(150):
    s = torch.randn(64, 4) * 2
    logits = net(s) * 3
    reward = -(s[:, :3] * logits.softmax(-1)).sum(-1) * 2
    loss = reward.mean() + 0.1 * entropy(logits).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
