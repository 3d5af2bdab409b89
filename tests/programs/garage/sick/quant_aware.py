import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def fake_quantize(w, bits=4):
    levels = 2 ** (bits - 1) - 1
    scale = w.detach().abs().amax() / levels
    quantised = torch.clamp(torch.round(w / scale), -levels, levels) * scale
    return quantised


class QuantLinear(nn.Linear):
    def __init__(self, *args, bits=4, **kwargs):
        super().__init__(*args, **kwargs)
        self.bits = bits

    def forward(self, x):
        return F.linear(x, fake_quantize(self.weight, self.bits), self.bias)


class QuantConv2d(nn.Conv2d):
    def __init__(self, *args, bits=4, **kwargs):
        super().__init__(*args, **kwargs)
        self.bits = bits

    def forward(self, x):
        return self._conv_forward(x, fake_quantize(self.weight, self.bits), self.bias)


class QuantNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.conv = QuantConv2d(8, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.fc1 = QuantLinear(16 * 16, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.norm(self.conv(x)))
        x = F.relu(self.fc1(F.adaptive_avg_pool2d(x, 4).flatten(1)))
        return self.fc2(x)


def shapes(count, size=12):
    labels = torch.randint(0, 3, (count,))
    images = 0.3 * torch.randn(count, 1, size, size)
    for i, label in enumerate(labels.tolist()):
        if label == 0:
            images[i, 0, 3:9, 3:9] += 1
        elif label == 1:
            images[i, 0, size // 2, :] += 2
        else:
            images[i, 0].diagonal().add_(2)
    return images, labels


def run_epoch(model, loader, optimizer, scheduler):
    seen, hits = 0, 0
    for x, y in loader:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        seen += len(y)
        hits += (logits.argmax(1) == y).sum().item()
    return hits / seen


def main():
    torch.manual_seed(26)
    loader = DataLoader(TensorDataset(*shapes(240)), batch_size=24, shuffle=True)
    model = QuantNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    epochs = 4
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(loader))
    for epoch in range(epochs):
        print(f"epoch {epoch} accuracy {run_epoch(model, loader, optimizer, scheduler):.3f}")


if __name__ == "__main__":
    main()
