import torch
from torch import nn


class FineTuner:
    def __init__(self):
        self.backbone = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU())
        self.backbone.requires_grad_(False)
        self.head = nn.Linear(24, 4)
        trainable = [p for m in (self.backbone, self.head) for p in m.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(trainable, lr=5e-3)

    def unfreeze(self):
        self.backbone.requires_grad_(True)

    def step(self, x, y):
        loss = nn.functional.cross_entropy(self.head(self.backbone(x)), y)
        self.backbone.zero_grad()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(49)
tuner = FineTuner()
for it in range(120):
    if it == 70:
        tuner.unfreeze()
    x = torch.randn(40, 14)
    value = tuner.step(x, x[:, :4].argmax(1))
    if it % 20 == 19:
        print(it, value)
