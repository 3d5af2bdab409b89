"""Generates handwriting: an LSTM with attention over the text and a mixture density output."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Writer(nn.Module):
    def __init__(self, alphabet=30, width=64, mixtures=5):
        super().__init__()
        self.width = width
        self.letters = nn.Embedding(alphabet, 16)
        self.cell = nn.LSTMCell(3 + 16, width)
        self.window = nn.Linear(width, 2)
        self.output = nn.Linear(width + 16, 6 * mixtures + 1)

    def forward(self, strokes, text):
        letters = self.letters(text)
        index = torch.arange(text.shape[1], dtype=torch.float32)
        batch = len(strokes)
        h = torch.zeros(batch, self.width)
        c = torch.zeros(batch, self.width)
        position = torch.zeros(batch, 1)
        glance = letters[:, 0]
        outputs = []
        for step in strokes.unbind(dim=1):
            h, c = self.cell(torch.cat([step, glance], dim=-1), (h, c))
            move, sharpness = self.window(h).exp().chunk(2, dim=-1)
            position = position + 0.1 * move
            weight = torch.softmax(-sharpness * (index - position).square(), dim=-1)
            glance = torch.einsum("bt,btc->bc", weight, letters)
            outputs.append(self.output(torch.cat([h, glance], dim=-1)))
        return torch.stack(outputs, dim=1)


def build_model():
    torch.manual_seed(43)
    return Writer()


def build_batch():
    torch.manual_seed(44)
    strokes = torch.cat([torch.randn(4, 41, 2), (torch.rand(4, 41, 1) < 0.05).float()], dim=-1)
    return (strokes[:, :-1], torch.randint(0, 30, (4, 9))), strokes[:, 1:]


def loss_fn(output, batch):
    target = batch[1]
    end, rest = output[..., :1], output[..., 1:]
    logit, x, y, log_sx, log_sy, correlation = rest.chunk(6, dim=-1)
    rho = 0.95 * torch.tanh(correlation)
    dx = (target[..., :1] - x) / log_sx.exp()
    dy = (target[..., 1:2] - y) / log_sy.exp()
    quadratic = (dx.square() + dy.square() - 2 * rho * dx * dy) / (1 - rho.square())
    log_density = -0.5 * quadratic - log_sx - log_sy - 0.5 * torch.log1p(-rho.square())
    log_density = log_density - math.log(2 * math.pi)
    mixture = torch.logsumexp(logit.log_softmax(dim=-1) + log_density, dim=-1)
    return F.binary_cross_entropy_with_logits(end, target[..., 2:]) - mixture.mean()
