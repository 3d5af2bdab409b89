import torch
from torch import nn

torch.manual_seed(33)
trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
head = nn.Linear(16, 3)
optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.05, momentum=0.9, weight_decay=1e-2)
for step in range(100):
    if step == 50:
        for p in trunk.parameters():
            p.requires_grad_(False)
            p.grad = None
    x = torch.randn(40, 10)
    y = x[:, :3].argmax(1)
    loss = nn.functional.cross_entropy(head(trunk(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(step, loss.item(), trunk[0].weight.norm().item())
