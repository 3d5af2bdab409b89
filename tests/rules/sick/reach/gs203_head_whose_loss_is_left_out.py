"""Two heads, and the loss of the second is computed and not added."""

import torch
from torch import nn
from torch.nn import functional


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.label = nn.Linear(8, 16), nn.Linear(16, 3)
        self.box = nn.Linear(16, 4)

    def forward(self, x):
        h = self.body(x).relu()
        return self.label(h), self.box(h)


def loss_fn(model, batch):
    x, label, box = batch
    labels, boxes = model(x)
    losses = {"label": functional.cross_entropy(labels, label)}  # <-
    losses["box"] = functional.l1_loss(boxes, box)
    return losses["label"]  # <-


torch.manual_seed(0)
model = Tasks()
batch = (torch.randn(16, 8), torch.arange(16) % 3, torch.randn(16, 4))
