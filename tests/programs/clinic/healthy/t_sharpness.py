import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        gradients = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.stack([g.norm() for g in gradients]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                shift = p.grad * (group["rho"] / (norm + 1e-12))
                p.add_(shift)
                self.state[p]["shift"] = shift

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if "shift" in self.state[p]:
                    p.sub_(self.state[p]["shift"])
        self.base.step()


def main():
    torch.manual_seed(5)
    centres = 1.5 * torch.randn(4, 16)
    y = torch.randint(0, 4, (640,))
    loader = DataLoader(TensorDataset(centres[y] + torch.randn(640, 16), y), 64, shuffle=True)
    model = nn.Sequential(
        nn.Linear(16, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, 4)
    )
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
    for epoch in range(5):
        model.train()
        for x, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.climb()
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
