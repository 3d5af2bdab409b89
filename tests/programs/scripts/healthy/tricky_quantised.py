import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import prune


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class QuantLinear(nn.Linear):
    def __init__(self, i, o, bits=4):
        super().__init__(i, o)
        self.levels = 2 ** (bits - 1) - 1
        self.log_step = nn.Parameter(torch.tensor(0.0))

    def forward(self, x):
        step = self.log_step.exp() * 0.5 / self.levels
        w = Round.apply((self.weight / step).clamp(-self.levels, self.levels)) * step
        return F.linear(x, w, self.bias)


torch.manual_seed(6)
net = nn.Sequential(QuantLinear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), QuantLinear(48, 4))
prune.l1_unstructured(net[2], "weight", amount=0.5)
rule = torch.randn(12, 4)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(150):
    x = torch.randn(64, 12)
    loss = F.cross_entropy(net(x), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 75:
        prune.l1_unstructured(net[2], "weight", amount=0.2)
    if step % 30 == 0:
        print(step, loss.item())
