import torch
import torch.nn as nn


class AffineFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_out @ weight
        if ctx.needs_input_grad[0]:
            grad_w = grad_out.t() @ x
        if ctx.needs_input_grad[2]:
            grad_b = grad_out.sum(0)
        return grad_x, grad_w, grad_b


class Affine(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.zeros(n_out))
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x):
        return AffineFn.apply(x, self.weight, self.bias)


def housing(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 9, generator=g)
    y = x[:, 0] * 1.5 + torch.relu(x[:, 1]) * 2 - x[:, 2].abs() + 0.1 * torch.randn(n, generator=g)
    return x, ((y - y.mean()) / y.std()).unsqueeze(1)


torch.manual_seed(331)
x, y = housing(512, 332)
model = nn.Sequential(Affine(9, 24), nn.ReLU(), Affine(24, 24), nn.ReLU(), Affine(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(15):
    for idx in torch.randperm(len(x)).split(64):
        loss = (model(x[idx]) - y[idx]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 3 == 0:
        print(epoch, f"mse {loss.item():.4f}")
