import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU())
        self.head = nn.Linear(40, 4)

    def forward(self, x):
        return self.head(self.body(x))


def sensitivity(net, x):
    for p in net.parameters():
        p.requires_grad_(False)
    x = x.clone().requires_grad_()
    value = torch.autograd.grad(net(x).logsumexp(1).sum(), x)[0].norm(dim=1).mean().item()
    for p in net.parameters():
        p.requires_grad_(True)
    return value


torch.manual_seed(91)
net = Net()
target = torch.randn(9, 4)
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(1, 121):
    x = torch.randn(64, 9)
    loss = F.cross_entropy(net(x), (x.abs() @ target).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item(), sensitivity(net, x))
