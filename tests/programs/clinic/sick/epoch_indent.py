import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class TemporalConvolution(nn.Module):
    def __init__(self, channels=3, width=24, classes=3):
        super().__init__()
        layers = []
        for i in range(3):
            layers += [
                nn.Conv1d(channels if i == 0 else width, width, 3, padding=2**i, dilation=2**i),
                nn.BatchNorm1d(width),
                nn.ReLU(),
            ]
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(width, classes)

    def forward(self, x):
        return self.classify(self.features(x).amax(dim=2))


def gestures(n=600, length=32):
    generator = torch.Generator().manual_seed(13)
    labels = torch.randint(0, 3, (n,), generator=generator)
    time = torch.arange(length) / length
    speed = (labels + 1)[:, None] * 6.28 * time
    clean = torch.stack([speed.sin(), speed.cos(), (2 * speed).sin()], dim=1)
    return TensorDataset(clean + 0.5 * torch.randn(n, 3, length, generator=generator), labels)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = total = 0
    for x, y in loader:
        hits += (model(x).argmax(dim=1) == y).sum().item()
        total += len(y)
    return hits / total


def fit(model, train_loader, valid_loader, epochs, patience=4):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    best, waited = 0.0, 0
    for epoch in range(epochs):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        score = accuracy(model, valid_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {score:.3f}")
        if score > best:
            best, waited = score, 0
        else:
            waited += 1
        if waited > patience:
            break


def main():
    torch.manual_seed(28)
    train, valid = random_split(gestures(), [480, 120])
    model = TemporalConvolution()
    fit(model, DataLoader(train, batch_size=40, shuffle=True), DataLoader(valid, batch_size=60), 8)


if __name__ == "__main__":
    main()
