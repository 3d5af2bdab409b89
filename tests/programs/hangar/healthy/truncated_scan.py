import torch
import torch.nn as nn
import torch.nn.functional as F


class Scan(nn.Module):
    def __init__(self, inputs=5, width=24):
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(1.0, 4.0, width))
        self.enter = nn.Linear(inputs, width)
        self.leave = nn.Linear(width, 1)

    def advance(self, series, state):
        keep = torch.sigmoid(self.decay)
        for value in self.enter(series).unbind(1):
            state = keep * state + (1 - keep) * torch.tanh(value)
        return state

    def forward(self, series, warm=60):
        state = series.new_zeros(len(series), self.decay.numel())
        with torch.no_grad():
            state = self.advance(series[:, :warm], state)
        return self.leave(self.advance(series[:, warm:], state)).squeeze(-1)


def build_model():
    torch.manual_seed(0)
    return Scan()


def build_batch():
    generator = torch.Generator().manual_seed(6)
    series = torch.randn(20, 80, 5, generator=generator)
    return {"series": series, "wanted": series[:, 70:, 0].mean(1) + 0.2 * series[:, -1, 1]}


def loss_fn(output, batch):
    return F.mse_loss(output, batch["wanted"])
