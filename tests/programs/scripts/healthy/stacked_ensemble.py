import torch
import torch.nn as nn
from torch.func import functional_call, stack_module_state, vmap


class Regressor(nn.Module):
    def __init__(self, dim=5, hidden=20):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(dim, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        mean, raw = self.fc3(x).chunk(2, -1)
        return mean, nn.functional.softplus(raw) + 1e-3


class Ensemble:
    def __init__(self, members=5):
        self.models = [Regressor() for _ in range(members)]
        self.params, self.buffers = stack_module_state(self.models)
        self.skeleton = self.models[0]

    def __call__(self, x):
        def one(params, buffers):
            return functional_call(self.skeleton, (params, buffers), (x,))

        return vmap(one)(self.params, self.buffers)

    def optimizer(self, lr):
        params = list(self.params.values())
        return torch.optim.Adam(params, lr=lr)


def observe(n):
    x = torch.rand(n, 5) * 4 - 2
    return x, torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.1 * torch.randn(n, 1)


torch.manual_seed(60)
ensemble = Ensemble()
optimizer = ensemble.optimizer(4e-3)
for i in range(150):
    x, y = observe(64)
    mean, var = ensemble(x)
    loss = nn.functional.gaussian_nll_loss(mean, y.expand_as(mean), var)
    for p in ensemble.params.values():
        p.grad = None
    loss.backward()
    optimizer.step()
    if i % 30 == 0:
        print(i, round(loss.item(), 3))
