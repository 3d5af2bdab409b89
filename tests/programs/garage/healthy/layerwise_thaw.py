import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(h)))


class ResNet(nn.Module):
    def __init__(self, classes, width=12, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.stages = nn.ModuleList(ResBlock(width) for _ in range(depth))
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean(dim=(2, 3)))


def freeze(module):
    module.requires_grad_(False)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eval()


def images(count, classes):
    labels = torch.randint(0, classes, (count,))
    x = 0.5 * torch.randn(count, 1, 10, 10)
    for i, label in enumerate(labels.tolist()):
        x[i, 0, 2 * label : 2 * label + 2] += 1.5
    return x, labels


def run(model, optimizer, batches, classes, frozen):
    model.train()
    for module in frozen:
        freeze(module)
    for _ in range(batches):
        x, y = images(32, classes)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(49)
    model = ResNet(3)
    print("pretrained", run(model, torch.optim.Adam(model.parameters(), lr=2e-3), 12, 3, []))
    model.fc = nn.Linear(12, 5)
    frozen = [model.stem, *model.stages]
    optimizer = torch.optim.AdamW(model.fc.parameters(), lr=2e-3)
    print("head", run(model, optimizer, 6, 5, frozen))
    rate = 1e-3
    while frozen:
        module = frozen.pop()
        module.requires_grad_(True)
        optimizer.add_param_group({"params": list(module.parameters()), "lr": rate})
        print(len(frozen), "frozen", run(model, optimizer, 6, 5, frozen))
        rate *= 0.5


if __name__ == "__main__":
    main()
