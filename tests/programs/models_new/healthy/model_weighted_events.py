import torch
import torch.nn as nn
import torch.nn.functional as F


class EventNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        _, state = self.rnn(x)
        return self.out(state[-1])


def build_model():
    torch.manual_seed(181)
    return EventNet()


def build_batch():
    g = torch.Generator().manual_seed(182)
    x = torch.randn(32, 9, 4, generator=g)
    label = (x[:, :, 0].mean(1) > 0).float()
    weight = torch.where(label > 0, 3.0, 1.0) * torch.rand(32, generator=g)
    return {"x": x, "label": label, "weight": weight}


def loss_fn(output, batch):
    label, weight = batch["label"], batch["weight"]
    losses = F.binary_cross_entropy_with_logits(output[:, 0], label, reduction="none")
    return (weight * losses).mean()
