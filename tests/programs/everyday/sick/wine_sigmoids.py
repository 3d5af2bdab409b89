import torch
from sklearn.datasets import load_wine
from torch import nn

torch.manual_seed(0)
wine = load_wine()
x = torch.tensor(wine.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(wine.target)


def hidden(inputs, outputs):
    layer = nn.Linear(inputs, outputs)
    return [layer, nn.Sigmoid()]


def build(depth=10, width=32):
    layers = hidden(13, width)
    for _ in range(depth - 1):
        layers += hidden(width, width)
    return nn.Sequential(*layers, nn.Linear(width, 3))


model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(12):
    order = torch.randperm(len(x))
    correct = 0
    for rows in order.split(24):
        logits = model(x[rows])
        loss = loss_fn(logits, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == y[rows]).sum().item()
    print(f"epoch {epoch:2d}  loss {loss.item():.4f}  accuracy {correct / len(x):.3f}")
