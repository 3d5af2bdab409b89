"""Self-supervised learning with two noisy views, a predictor and a symmetric cosine loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Siamese(nn.Module):
    def __init__(self, n_in=20, dim=24, out=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, out))
        self.predictor = nn.Sequential(nn.Linear(out, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, x):
        z = self.encoder(x)
        return self.predictor(z), z


def distance(p, z):
    return 1 - F.cosine_similarity(p, z.detach(), dim=-1).mean()


def main(steps=120):
    torch.set_num_threads(1)
    torch.manual_seed(420)
    centers = torch.randn(6, 20)
    model = Siamese()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for step in range(steps):
        x = centers[torch.randint(0, 6, (64,))] + 0.3 * torch.randn(64, 20)
        p1, z1 = model(x + 0.2 * torch.randn(64, 20))
        p2, z2 = model(x + 0.2 * torch.randn(64, 20))
        loss = 0.5 * (distance(p1, z2) + distance(p2, z1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            spread = F.normalize(z1, dim=-1).std(dim=0).mean().item()
            print(f"step {step} loss {loss.item():.4f} spread {spread:.4f}")


if __name__ == "__main__":
    main()
