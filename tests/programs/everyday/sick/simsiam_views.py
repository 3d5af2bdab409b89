import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(55)


class SimSiam(nn.Module):
    def __init__(self, inputs=32, dim=32, hidden=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, dim)
        )
        self.predictor = nn.Sequential(
            nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, dim)
        )

    def forward(self, a, b):
        z1, z2 = self.encoder(a), self.encoder(b)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1, z2


def augment(x):
    keep = (torch.rand_like(x) > 0.2).float()
    return x * keep + 0.2 * torch.randn_like(x)


centres = torch.randn(8, 32)
model = SimSiam()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
criterion = nn.CosineSimilarity(dim=1)
for step in range(120):
    x = centres[torch.randint(8, (64,))] + 0.3 * torch.randn(64, 32)
    p1, p2, z1, z2 = model(augment(x), augment(x))
    loss = -(criterion(p1, z2).mean() + criterion(p2, z1).mean()) * 0.5
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        spread = F.normalize(z1.detach(), dim=1).std(0).mean()
        print(f"step {step} loss {loss.item():.3f} spread {spread.item():.4f}")
