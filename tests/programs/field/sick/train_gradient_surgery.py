import torch
import torch.nn.functional as F
from torch import nn


class PCGrad:
    """Projects each task's gradient off those it conflicts with (Yu et al., 2020)."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.params = [p for group in optimizer.param_groups for p in group["params"]]

    def pc_backward(self, losses):
        per_task = []
        for loss in losses:
            self.optimizer.zero_grad(set_to_none=False)
            loss.backward(retain_graph=True)
            per_task.append([p.grad for p in self.params])
        merged = self.project(per_task)
        for p, g in zip(self.params, merged):
            p.grad = g

    def project(self, per_task):
        flat = [torch.cat([g.flatten() for g in grads]) for grads in per_task]
        total = torch.zeros_like(flat[0])
        for i, own in enumerate(flat):
            g = own.clone()
            for j, other in enumerate(flat):
                dot = torch.dot(g, other)
                if i != j and dot < 0:
                    g -= dot / (other.norm() ** 2 + 1e-12) * other
            total += g
        out, at = [], 0
        for p in self.params:
            out.append(total[at : at + p.numel()].view_as(p).clone())
            at += p.numel()
        return out

    def step(self):
        self.optimizer.step()


class SharedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 48), nn.Tanh())
        self.price = nn.Linear(48, 1)
        self.sold = nn.Linear(48, 1)

    def forward(self, x):
        h = self.body(x)
        return self.price(h).squeeze(1), self.sold(h).squeeze(1)


def main():
    torch.manual_seed(5)
    net = SharedNet()
    with torch.no_grad():
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
    optimizer = PCGrad(torch.optim.Adam(net.parameters(), lr=5e-3))
    for step in range(200):
        x = torch.randn(64, 8)
        price, sold = net(x)
        first = F.mse_loss(price, x[:, 0] - x[:, 1])
        second = F.binary_cross_entropy_with_logits(sold, (x[:, 2] + x[:, 0] > 0).float())
        optimizer.pc_backward([first, second])
        optimizer.step()
        if step % 50 == 0:
            print(step, round(first.item(), 3), round(second.item(), 3))


main()
