import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(68)
w1 = (torch.randn(8, 32) / 8 ** 0.5).requires_grad_()
b1 = torch.zeros(32, requires_grad=True)
w2 = (torch.randn(32, 2) / 32 ** 0.5).requires_grad_()
params = [w1, b1, w2]
first = [torch.zeros_like(p) for p in params]
second = [torch.zeros_like(p) for p in params]
for t in range(1, 121):
    x = torch.randn(40, 8)
    y = (x[:, 0] > x[:, 1]).long()
    loss = F.cross_entropy(torch.relu(x @ w1 + b1) @ w2, y)
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for p, g, m, v in zip(params, grads, first, second):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            p -= 5e-3 * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.99 ** t)).sqrt() + 1e-8)
    if t % 30 == 0:
        print(t, loss.item())
