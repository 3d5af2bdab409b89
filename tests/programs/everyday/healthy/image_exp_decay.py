import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


def get_loader(batch_size=64):
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    return DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=batch_size, shuffle=True)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 128)
        self.drop = nn.Dropout(0.1)
        self.output = nn.Linear(128, 10)

    def forward(self, x):
        return self.output(self.drop(torch.relu(self.hidden(x))))


def fit(model, loader, optimizer, scheduler, criterion):
    for epoch in range(EPOCHS):
        model.train()
        total, correct = 0.0, 0
        for x, y in loader:
            optimizer.zero_grad()
            out = model(x)
            loss = criterion(out, y)
            loss.backward()
            optimizer.step()
            total += loss.item()
            correct += (out.argmax(1) == y).sum().item()
        scheduler.step()
        lr = scheduler.get_last_lr()[0]
        print(f"epoch {epoch} loss {total / len(loader):.3f} acc {correct / 1280:.3f} lr {lr:.2e}")


def main():
    torch.manual_seed(77)
    model = MLP()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    fit(model, get_loader(), optimizer, scheduler, nn.CrossEntropyLoss())


if __name__ == "__main__":
    main()
