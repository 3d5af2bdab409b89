import torch
import torch.nn.functional as F
from torch import nn

PAD, BOS = 0, 1


class Seq2Seq(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.generator = nn.Linear(dim, vocab)

    def forward(self, src, tgt_in):
        _, state = self.encoder(self.embed(src))
        out, _ = self.decoder(self.embed(tgt_in), state)
        return self.generator(out)


class LabelLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    def forward(self, logits, target):
        return self.criterion(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def build_model():
    torch.manual_seed(61)
    return Seq2Seq()


def build_batch():
    g = torch.Generator().manual_seed(62)
    lengths = torch.randint(2, 7, (16,), generator=g)
    src = torch.randint(2, 50, (16, 20), generator=g)
    keep = torch.arange(20)[None] < lengths[:, None]
    src = src.masked_fill(~keep, PAD)
    tgt = src
    tgt_in = torch.cat([torch.full((16, 1), BOS), tgt[:, :-1]], 1)
    return {"src": src, "tgt_in": tgt_in, "tgt": tgt}


def compute_loss(model, batch):
    return LabelLoss()(model(batch["src"], batch["tgt_in"]), batch["tgt"])
