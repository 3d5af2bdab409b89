import torch
import torch.nn as nn
import torch.nn.functional as F


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.layer1 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.layer2 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, 1000)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x)).mean((2, 3))
        return self.fc(x)


def build_model():
    torch.manual_seed(261)
    model = Backbone()
    model.fc = nn.Linear(16, 4)
    for name, p in model.named_parameters():
        p.requires_grad = "layer" in name
    return model


def build_batch():
    g = torch.Generator().manual_seed(262)
    label = torch.randint(0, 4, (24,), generator=g)
    return torch.randn(24, 3, 16, 16, generator=g) * 0.3 + label.view(-1, 1, 1, 1) / 2, label


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
