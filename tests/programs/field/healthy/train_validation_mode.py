import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def build(n_in, classes):
    return nn.Sequential(
        nn.Linear(n_in, 96),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(96, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(48, classes),
    )


def train_one_epoch(model, loader, optimizer, criterion):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total = right = 0.0
    for x, y in loader:
        logits = model(x)
        total += criterion(logits, y).item()
        right += (logits.argmax(1) == y).float().mean().item()
    return total / len(loader), right / len(loader)


def main():
    torch.manual_seed(32)
    x = torch.randn(480, 24)
    y = (x[:, :6].sum(1) + x[:, 6] * x[:, 7] > 0).long()
    train_set, valid_set = random_split(TensorDataset(x, y), [360, 120])
    train_loader = DataLoader(train_set, batch_size=40, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=60)
    model = build(24, 2)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for epoch in range(8):
        loss = train_one_epoch(model, train_loader, optimizer, criterion)
        valid, accuracy = validate(model, valid_loader, criterion)
        print(epoch, round(loss, 4), round(valid, 4), round(accuracy, 3))


if __name__ == "__main__":
    main()
