"""Completes a knowledge graph: complex embeddings that start from text vectors."""

import torch
import torch.nn.functional as F
from torch import nn


def text_vectors(count, width, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator) * width**-0.5


class Completion(nn.Module):
    def __init__(self, entities=200, relations=12, width=32):
        super().__init__()
        self.entities = nn.Embedding.from_pretrained(
            text_vectors(entities, 2 * width, 1), freeze=False
        )
        self.relations = nn.Embedding(relations, 2 * width)
        nn.init.normal_(self.relations.weight, std=(2 * width) ** -0.5)
        self.dropout = nn.Dropout(0.1)
        self.bias = nn.Parameter(torch.zeros(entities))

    def forward(self, subject, relation):
        a, b = self.dropout(self.entities(subject)).chunk(2, dim=-1)
        c, d = self.relations(relation).chunk(2, dim=-1)
        real, imaginary = self.entities.weight.chunk(2, dim=-1)
        return (a * c - b * d) @ real.T + (a * d + b * c) @ imaginary.T + self.bias


def build_model():
    torch.manual_seed(55)
    return Completion()


def build_batch():
    torch.manual_seed(56)
    inputs = (torch.randint(0, 200, (64,)), torch.randint(0, 12, (64,)))
    return inputs, torch.randint(0, 200, (64,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])


def build_optimizer(model):
    return torch.optim.Adagrad(
        [
            {"params": model.entities.parameters(), "lr": 0.05},
            {"params": [*model.relations.parameters(), model.bias], "lr": 0.1},
        ]
    )
