"""Self-supervised features from two noisy views."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SiameseNet(nn.Module):
    def __init__(self, dim_in=24, dim=32, bottleneck=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim_in, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(),
                                     nn.Linear(64, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, bottleneck), nn.ReLU(), nn.Linear(bottleneck, dim))

    def forward(self, v1, v2):
        z1, z2 = self.encoder(v1), self.encoder(v2)
        return self.predictor(z1), self.predictor(z2), z1, z2


def negative_cosine(p, z):
    return -F.cosine_similarity(p, z.detach(), dim=-1).mean()


def view(x, g):
    mask = (torch.rand(x.shape, generator=g) > 0.2).float()
    return x * mask + 0.1 * torch.randn(x.shape, generator=g)


@torch.no_grad()
def spread(z):
    return F.normalize(z, dim=-1).std(dim=0).mean().item()


def main():
    torch.manual_seed(231)
    g = torch.Generator().manual_seed(232)
    basis = torch.randn(6, 24, generator=g)
    net = SiameseNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(150):
        x = torch.randn(128, 6, generator=g) @ basis
        p1, p2, z1, z2 = net(view(x, g), view(x, g))
        loss = 0.5 * (negative_cosine(p1, z2) + negative_cosine(p2, z1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"{step} loss {loss.item():.4f} spread {spread(z1):.4f}")


main()
