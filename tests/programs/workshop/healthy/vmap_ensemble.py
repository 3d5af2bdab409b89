import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap


class Member(nn.Module):
    def __init__(self, d_in=6, hidden=24):
        super().__init__()
        self.fc1 = nn.Linear(d_in, hidden)
        self.fc2 = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def main(size=5, steps=80):
    torch.manual_seed(0)
    members = [Member() for _ in range(size)]
    params, buffers = stack_module_state(members)
    skeleton = Member().to("meta")

    def run(p, b, x):
        return functional_call(skeleton, (p, b), (x,))

    optimizer = torch.optim.Adam(list(params.values()), lr=1e-2)
    x_all = torch.randn(400, 6)
    y_all = (x_all[:, :1] * 2).cos() + 0.1 * x_all[:, 1:2]
    for step in range(steps):
        # every member sees its own bootstrap sample
        idx = torch.randint(0, len(x_all), (size, 64))
        pred = vmap(run)(params, buffers, x_all[idx])
        loss = ((pred - y_all[idx]) ** 2).mean(dim=(1, 2)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item() / size)
    final = vmap(run, in_dims=(0, 0, None))(params, buffers, x_all)
    print("rmse", (final.mean(0) - y_all).pow(2).mean().sqrt().item())


main()
