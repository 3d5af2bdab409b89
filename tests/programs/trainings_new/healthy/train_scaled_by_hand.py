import torch
from torch import nn

torch.manual_seed(71)
SCALE = 1024.0
master = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
half = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)).half()
optimizer = torch.optim.SGD(master.parameters(), lr=0.1, momentum=0.9)
for step in range(100):
    with torch.no_grad():
        for h, m in zip(half.parameters(), master.parameters()):
            h.copy_(m)
    x = torch.randn(64, 10)
    y = x[:, :3].argmax(1)
    loss = nn.functional.cross_entropy(half(x.half()).float(), y)
    half.zero_grad()
    (loss * SCALE).backward()
    for h, m in zip(half.parameters(), master.parameters()):
        m.grad = h.grad.float() / SCALE
    optimizer.step()
    if step % 25 == 24:
        print(step, loss.item())
