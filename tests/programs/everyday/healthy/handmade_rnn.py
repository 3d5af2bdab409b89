"""The adding problem with a plain recurrent cell."""

import torch
import torch.nn as nn

torch.manual_seed(19)


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.w_in = nn.Parameter(0.1 * torch.randn(inputs, hidden))
        self.w_rec = nn.Parameter(nn.init.orthogonal_(torch.empty(hidden, hidden)))
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x, h):
        return torch.relu(x @ self.w_in + h @ self.w_rec + self.bias)


class AddingNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.hidden = hidden
        self.cell = Cell(2, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, sequence):
        h = sequence.new_zeros(len(sequence), self.hidden)
        for x in sequence.unbind(1):
            h = self.cell(x, h)
        return self.out(h).squeeze(1)


def adding(n, length=40):
    values = torch.rand(n, length)
    marks = torch.zeros(n, length)
    marks[torch.arange(n), torch.randint(0, length // 2, (n,))] = 1
    marks[torch.arange(n), torch.randint(length // 2, length, (n,))] = 1
    return torch.stack([values, marks], 2), (values * marks).sum(1)


net = AddingNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.002)
for step in range(60):
    x, y = adding(32)
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4g}")
