import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, lr=0.02):
        self.model = model
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            running = 0.0
            for x, y in loader:
                loss = self.criterion(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                running += loss.item()
            print(f"epoch {epoch}: {running / len(loader):.4f}")


torch.manual_seed(0)
x = torch.randn(240, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 2))
Trainer(net, lr=0.1).fit(DataLoader(TensorDataset(x, y), 24, shuffle=True), 12)
