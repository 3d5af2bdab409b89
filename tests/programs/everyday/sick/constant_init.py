import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer

torch.manual_seed(0)


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.constant_(m.weight, 0.1)
        nn.init.zeros_(m.bias)


class Net(nn.Module):
    def __init__(self, inputs, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 2)
        self.apply(init_weights)

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.fc3(x)


cancer = load_breast_cancer()
x = torch.tensor(cancer.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(cancer.target)
model = Net(x.shape[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for epoch in range(6):
    for rows in torch.randperm(len(x)).split(32):
        loss = criterion(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    acc = (model(x).argmax(1) == y).float().mean()
    print(f"epoch {epoch} acc {acc.item():.3f}")
