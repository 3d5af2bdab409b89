import torch
from torch import nn


class Factorization(nn.Module):
    def __init__(self, rows=40, cols=30, rank=4):
        super().__init__()
        self.u = nn.Parameter(torch.randn(rows, rank) * 0.3)
        self.v = nn.Parameter(torch.randn(cols, rank) * 0.3)

    def forward(self):
        return self.u @ self.v.t()


def main():
    torch.manual_seed(0)
    truth = torch.randn(40, 4) @ torch.randn(4, 30)
    mask = torch.rand(40, 30) < 0.5
    model = Factorization()
    opts = [torch.optim.Adam([model.u], lr=0.05), torch.optim.Adam([model.v], lr=0.05)]
    for it in range(120):
        which = (it // 5) % 2
        model.u.requires_grad_(which == 0)
        model.v.requires_grad_(which == 1)
        loss = (model() - truth)[mask].pow(2).mean()
        opts[which].zero_grad()
        loss.backward()
        opts[which].step()
        if it % 30 == 0:
            print(it, loss.item())
    print("end", loss.item())


main()
