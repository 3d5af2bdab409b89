import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state


class Member(nn.Module):
    def __init__(self, n_in=5, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Ensemble:
    def __init__(self, size):
        self.members = [Member() for _ in range(size)]
        self.params, self.buffers = stack_module_state(self.members)
        skeleton = copy.deepcopy(self.members[0]).to("meta")
        self.call = torch.vmap(lambda p, b, x: functional_call(skeleton, (p, b), (x,)), in_dims=(0, 0, None), randomness="different")

    def parameters(self):
        for member in self.members:
            yield from member.parameters()

    def __call__(self, x):
        return self.call(self.params, self.buffers, x)


def fit(ensemble, x, y, epochs=80):
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=1e-2)
    for epoch in range(epochs):
        order = torch.randperm(len(x))
        for rows in order.split(64):
            optimizer.zero_grad()
            loss = ((ensemble(x[rows]) - y[rows]) ** 2).mean(1).sum()
            loss.backward()
            optimizer.step()
        if epoch % 20 == 0:
            print(epoch, round(loss.item(), 4))


torch.manual_seed(20)
x = torch.randn(256, 5)
y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2]
fit(Ensemble(4), x, y)
