import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap


class Member(nn.Module):
    def __init__(self, features=1, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, x):
        mean, log_variance = self.net(x).chunk(2, dim=-1)
        return mean.squeeze(-1), log_variance.squeeze(-1).clamp(-6, 4)


class Ensemble:
    def __init__(self, size):
        self.models = [Member() for _ in range(size)]
        self.params, self.buffers = stack_module_state(self.models)
        self.base = copy.deepcopy(self.models[0]).to("meta")

    def call(self, params, buffers, x):
        return functional_call(self.base, (params, buffers), (x,))

    def __call__(self, x):
        return vmap(self.call, in_dims=(0, 0, None))(self.params, self.buffers, x)

    def parameters(self):
        return list(self.params.values())


def gaussian_nll(mean, log_variance, target):
    return 0.5 * (log_variance + (target - mean) ** 2 * torch.exp(-log_variance))


def toy(count):
    x = torch.rand(count, 1) * 8 - 4
    noise = 0.1 + 0.2 * x.abs().squeeze(-1) / 4
    return x, torch.sin(x).squeeze(-1) + noise * torch.randn(count)


def main():
    torch.manual_seed(33)
    ensemble = Ensemble(5)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=5e-3)
    for step in range(60):
        x, y = toy(64)
        mean, log_variance = ensemble(x)
        loss = gaussian_nll(mean, log_variance, y).mean(dim=1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            spread = mean.detach().std(dim=0).mean().item()
            print(f"{step}: {loss.item() / 5:.4f} disagreement {spread:.4f}")


if __name__ == "__main__":
    main()
