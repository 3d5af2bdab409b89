import torch
import torch.nn as nn


def block(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, n_out), nn.Sigmoid())


def mlp(sizes):
    layers = [block(a, b) for a, b in zip(sizes[:-1], sizes[1:])]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 2))


def build_model():
    torch.manual_seed(81)
    return mlp([16] + [32] * 14)


def build_batch():
    g = torch.Generator().manual_seed(82)
    x = torch.randn(64, 16, generator=g)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
