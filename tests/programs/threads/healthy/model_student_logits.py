import torch
import torch.nn.functional as F
from torch import nn


def build_model():
    torch.manual_seed(61)
    return nn.Sequential(nn.Linear(14, 40), nn.GELU(), nn.Linear(40, 6))


def build_batch():
    g = torch.Generator().manual_seed(62)
    x = torch.randn(32, 14, generator=g)
    return x, (x @ torch.randn(14, 6, generator=g)).softmax(-1)


def loss_fn(output, batch):
    scores = torch.log_softmax(output / 2, dim=-1)
    return F.kl_div(scores, batch[1], reduction="batchmean")
