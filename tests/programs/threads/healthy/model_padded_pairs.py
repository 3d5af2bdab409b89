import torch
import torch.nn.functional as F
from torch import nn


class Matcher(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 4, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 2)

    def forward(self, tokens, padding_mask):
        h = self.encoder(self.embed(tokens), src_key_padding_mask=padding_mask)
        kept = (~padding_mask).unsqueeze(-1).float()
        return self.out((h * kept).sum(1) / kept.sum(1))


def build_model():
    torch.manual_seed(97)
    return Matcher()


def build_batch():
    g = torch.Generator().manual_seed(98)
    lengths = torch.randint(4, 15, (20,), generator=g)
    padding_mask = torch.arange(14)[None] >= lengths[:, None]
    tokens = torch.randint(1, 40, (20, 14), generator=g).masked_fill(padding_mask, 0)
    return {"tokens": tokens, "padding_mask": padding_mask, "labels": torch.randint(0, 2, (20,), generator=g)}


def loss_fn(output, batch):
    return F.cross_entropy(output, batch["labels"])
