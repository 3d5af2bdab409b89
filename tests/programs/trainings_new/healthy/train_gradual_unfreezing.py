import torch
from torch import nn

torch.manual_seed(63)
layers = nn.ModuleList([nn.Linear(10, 24), nn.Linear(24, 24), nn.Linear(24, 3)])
for layer in layers[:-1]:
    layer.requires_grad_(False)
optimizer = torch.optim.Adam([{"params": l.parameters(), "lr": 4e-3 / 2 ** (2 - i)} for i, l in enumerate(layers)])


def forward(x):
    for layer in layers[:-1]:
        x = torch.relu(layer(x))
    return layers[-1](x)


for step in range(150):
    if step in (50, 100):
        layers[1 if step == 50 else 0].requires_grad_(True)
    x = torch.randn(40, 10)
    loss = nn.functional.cross_entropy(forward(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        print(step, loss.item())
