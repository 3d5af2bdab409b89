import torch
import torch.nn as nn
import torch.nn.functional as F

OPS = {
    "skip": lambda c: nn.Identity(),
    "conv3": lambda c: nn.Sequential(nn.Conv1d(c, c, 3, padding=1), nn.ReLU()),
    "conv5": lambda c: nn.Sequential(nn.Conv1d(c, c, 5, padding=2), nn.ReLU()),
    "pool": lambda c: nn.AvgPool1d(3, 1, 1),
}


class MixedOp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ops = nn.ModuleList(make(c) for make in OPS.values())

    def forward(self, x, weights):
        return sum(w * op(x) for w, op in zip(weights, self.ops))


class Cell(nn.Module):
    def __init__(self, c, nodes=2):
        super().__init__()
        self.edges = nn.ModuleList(MixedOp(c) for i in range(nodes) for _ in range(i + 1))
        self.nodes = nodes

    def forward(self, x, weights):
        states, offset = [x], 0
        for i in range(self.nodes):
            s = sum(self.edges[offset + j](h, weights[offset + j]) for j, h in enumerate(states))
            offset += i + 1
            states.append(s)
        return states[-1]


class Supernet(nn.Module):
    def __init__(self, c=8, classes=4):
        super().__init__()
        self.stem = nn.Conv1d(1, c, 3, padding=1)
        self.cells = nn.ModuleList(Cell(c) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(c) for _ in range(2))
        self.classifier = nn.Linear(c, classes)
        self.alphas = nn.Parameter(1e-3 * torch.randn(3, len(OPS)))

    def weights(self):
        return F.gumbel_softmax(self.alphas, tau=1.0, hard=True)

    def forward(self, x):
        x, weights = self.stem(x), self.weights()
        for cell, norm in zip(self.cells, self.norms):
            x = norm(cell(x, weights))
        return self.classifier(x.mean(-1))

    def network_parameters(self):
        return [p for n, p in self.named_parameters() if n != "alphas"]


def signals(n):
    label = torch.randint(0, 4, (n,))
    t = torch.arange(24)
    return torch.sin(t[None] * (0.3 + 0.3 * label[:, None]) + torch.rand(n, 1) * 6)[:, None] + 0.1 * torch.randn(n, 1, 24), label


torch.manual_seed(28)
net = Supernet()
w_opt = torch.optim.SGD(net.network_parameters(), lr=0.05, momentum=0.9)
a_opt = torch.optim.Adam([net.alphas], lr=3e-2, betas=(0.5, 0.999))
for step in range(60):
    x, y = signals(32)
    a_opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    a_opt.step()
    x, y = signals(32)
    w_opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    w_opt.step()
    if step % 15 == 0:
        print(step, loss.item(), net.alphas.argmax(-1).tolist())
