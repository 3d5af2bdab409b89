import torch
import torch.nn.functional as F
from swish_ops import MemorySwish
from torch import nn


class ScaledTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = 1.7159 * torch.tanh(2 * x / 3)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        derivative = 2 / 3 * (1.7159 - y * y / 1.7159)
        return grad_output * derivative


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.swish = MemorySwish()

    def forward(self, x):
        x = self.swish(self.fc1(x))
        x = ScaledTanh.apply(self.fc2(x))
        return self.fc3(x)


def main():
    torch.manual_seed(53)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(100):
        x = torch.randn(64, 8)
        y = (x[:, :1] * 1.5).sin() + x[:, 1:2].abs()
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
