"""Answers questions on a table: one network selects a row, a second reads it."""

import torch
import torch.nn.functional as F
from torch import nn


class Selector(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.question = nn.GRU(width, width, batch_first=True)
        self.row = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, question, rows):
        _, state = self.question(question)
        return torch.einsum("bc,brc->br", state[-1], self.row(rows)) / rows.shape[-1] ** 0.5


class Reader(nn.Module):
    def __init__(self, width, answers):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2 * width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width)
        )
        self.head = nn.Linear(2 * width, answers)

    def forward(self, question, row):
        return self.head(self.body(torch.cat([question.mean(dim=1), row], dim=-1)))


class TableReader(nn.Module):
    def __init__(self, vocabulary=300, width=48, answers=20):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.selector = Selector(width)
        self.reader = Reader(width, answers)

    def forward(self, question, table):
        words = self.embedding(question)
        rows = self.embedding(table).mean(dim=2)
        score = self.selector(words, rows)
        chosen = score.softmax(dim=-1)
        row = torch.einsum("br,brc->bc", chosen, rows)
        return self.reader(words, row)


def build_model():
    torch.manual_seed(23)
    return TableReader()


def build_batch():
    torch.manual_seed(24)
    question = torch.randint(0, 300, (8, 10))
    return (question, torch.randint(0, 300, (8, 12, 5))), torch.randint(0, 20, (8,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
