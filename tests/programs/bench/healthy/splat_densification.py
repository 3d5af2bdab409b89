"""Fit an image with two-dimensional Gaussian splats, with densification."""

import torch
from torch import nn

SIZE = 16


class Splats(nn.Module):
    def __init__(self, n=12):
        super().__init__()
        self.means = nn.Parameter(torch.rand(n, 2))
        self.log_scales = nn.Parameter(torch.full((n,), -2.0))
        self.colors = nn.Parameter(torch.rand(n, 3))
        self.opacities = nn.Parameter(torch.zeros(n))

    def render(self, grid):
        d2 = (grid[:, None, :] - self.means[None]).pow(2).sum(-1)
        weight = torch.sigmoid(self.opacities) * torch.exp(-0.5 * d2 / self.log_scales.exp().pow(2))
        return weight @ self.colors

    def densify(self, optimizer, count=4):
        grad = self.means.grad.norm(dim=1)
        chosen = grad.topk(count).indices
        with torch.no_grad():
            extended = {
                name: torch.cat([p, p[chosen] + 0.01 * torch.randn_like(p[chosen])])
                for name, p in self.named_parameters()
            }
        for name, value in extended.items():
            group = next(g for g in optimizer.param_groups if g["name"] == name)
            optimizer.state.pop(group["params"][0], None)
            parameter = nn.Parameter(value)
            group["params"] = [parameter]
            setattr(self, name, parameter)


def build_optimizer(model):
    rates = {"means": 1e-2, "log_scales": 2e-2, "colors": 3e-2, "opacities": 3e-2}
    groups = [{"params": [p], "lr": rates[n], "name": n} for n, p in model.named_parameters()]
    return torch.optim.Adam(groups, eps=1e-15)


def target_image(grid):
    inside = ((grid - 0.5).norm(dim=1, keepdim=True) < 0.3).float()
    return inside * torch.tensor([0.9, 0.3, 0.1]) + (1 - inside) * torch.tensor([0.1, 0.2, 0.5])


def main():
    torch.manual_seed(15)
    axis = torch.linspace(0, 1, SIZE)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).reshape(-1, 2)
    image, model = target_image(grid), Splats()
    optimizer = build_optimizer(model)
    for it in range(1, 61):
        loss = (model.render(grid) - image).abs().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if it in (20, 40):
            model.densify(optimizer)
        if it % 15 == 0:
            print(f"{it}: l1 {loss.item():.4f} splats {len(model.means)}")


if __name__ == "__main__":
    main()
