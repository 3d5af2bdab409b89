import torch
import torch.nn as nn
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_user = nn.Embedding(50, 8)
        self.emb_item = nn.Embedding(40, 8)
        self.bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.emb_user.weight, std=0.3)
        nn.init.normal_(self.emb_item.weight, std=0.3)

    def forward(self, u, i):
        return (self.emb_user(u) * self.emb_item(i)).sum(-1) + self.bias


def main():
    torch.manual_seed(2)
    truth_u, truth_i = torch.randn(50, 3), torch.randn(40, 3)
    model = Model()
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    sched = ReduceLROnPlateau(opt, mode="min", factor=0.3, patience=1)
    for epoch in range(12):
        total = 0.0
        for _ in range(10):
            u, i = torch.randint(0, 50, (256,)), torch.randint(0, 40, (256,))
            rating = (truth_u[u] * truth_i[i]).sum(-1)
            loss = (model(u, i) - rating).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        sched.step(total / 10)
        print(f"{epoch:2d} loss {total / 10:.3f} lr {opt.param_groups[0]['lr']:.2e}")


main()
