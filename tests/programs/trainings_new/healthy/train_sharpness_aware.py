import torch
from torch import nn

torch.manual_seed(67)
model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))
base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
rho = 0.05
for step in range(80):
    x = torch.randn(48, 12)
    y = x[:, :3].argmax(1)
    loss = nn.functional.cross_entropy(model(x), y)
    base.zero_grad()
    loss.backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        moves = [rho * p.grad / (norm + 1e-12) for p in model.parameters()]
        for p, e in zip(model.parameters(), moves):
            p.add_(e)
    base.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), moves):
            p.sub_(e)
    base.step()
    if step % 20 == 19:
        print(step, loss.item())
