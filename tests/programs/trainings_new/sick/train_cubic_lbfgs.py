import torch
from torch import nn

torch.manual_seed(44)
x = torch.linspace(-1, 1, 60).unsqueeze(1)
y = x ** 3 - 0.5 * x
model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=4)


def closure():
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for i in range(15):
    value = optimizer.step(closure)
    if i % 5 == 4:
        print(i, value.item())
