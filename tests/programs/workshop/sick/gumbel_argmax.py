import torch
import torch.nn as nn
import torch.nn.functional as F


class FeatureSelector(nn.Module):
    """Chooses k of n features for all samples."""

    def __init__(self, n, k, tau=1.0):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(k, n) * 0.1)
        self.tau = tau

    def forward(self, x):
        noisy = self.logits - torch.empty_like(self.logits).exponential_().log()
        soft = F.softmax(noisy / self.tau, dim=-1)
        hard = F.one_hot(soft.argmax(-1), x.size(-1)).float()
        choice = hard
        return x @ choice.t()


class ConcreteRegressor(nn.Module):
    def __init__(self, n=12, k=3):
        super().__init__()
        self.select = FeatureSelector(n, k)
        self.mlp = nn.Sequential(nn.Linear(k, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.mlp(self.select(x))


def main():
    torch.manual_seed(0)
    model = ConcreteRegressor()
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    start = model.select.logits.detach().clone()
    for step in range(100):
        x = torch.randn(128, 12)
        y = 2 * x[:, 3:4] - x[:, 7:8]
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", loss.item(), "chosen", model.select.logits.argmax(-1).tolist())
    print("moved", (model.select.logits - start).norm().item())


main()
