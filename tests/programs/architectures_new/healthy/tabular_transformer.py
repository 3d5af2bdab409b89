"""A transformer over the fields of card transactions, which scores each row for fraud."""

import torch
import torch.nn.functional as F
from torch import nn


class FieldTransformer(nn.Module):
    def __init__(self, cardinalities, numeric, width=32, depth=4):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(count, width) for count in cardinalities])
        self.scale = nn.Parameter(torch.randn(numeric, width) * 0.1)
        self.shift = nn.Parameter(torch.zeros(numeric, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, norm_first=True, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.score = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, categories, numbers):
        columns = [table(categories[:, i]) for i, table in enumerate(self.embeddings)]
        fields = torch.stack(columns, dim=1)
        fields = torch.cat([fields, numbers.unsqueeze(-1) * self.scale + self.shift], dim=1)
        encoded = self.encoder(fields)
        return self.score(encoded.mean(dim=1)).squeeze(-1)


def build_model():
    torch.manual_seed(9)
    return FieldTransformer([12, 7, 30, 5, 100], 6)


def build_batch():
    torch.manual_seed(10)
    categories = torch.stack([torch.randint(0, n, (32,)) for n in (12, 7, 30, 5, 100)], dim=1)
    return (categories, torch.randn(32, 6)), torch.randint(0, 2, (32,)).float()


def loss_fn(output, batch):
    return F.binary_cross_entropy_with_logits(output, batch[1])
