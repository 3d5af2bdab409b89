"""Tiny T5 for copying sequences, with its own output head that shares the token embedding matrix."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import T5Config, T5Model


class Seq2Seq(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        config = T5Config(vocab_size=vocab, d_model=dim, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                          dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0)
        self.t5 = T5Model(config)
        self.scale = dim ** -0.5
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight.data = self.t5.shared.weight.data.clone()

    def forward(self, input_ids, decoder_input_ids, labels=None):
        hidden = self.t5(input_ids=input_ids, decoder_input_ids=decoder_input_ids).last_hidden_state
        return self.lm_head(hidden * self.scale)


def build_model():
    torch.manual_seed(31)
    return Seq2Seq()


def build_batch():
    g = torch.Generator().manual_seed(32)
    ids = torch.randint(1, 50, (8, 9), generator=g)
    start = torch.zeros(8, 1, dtype=torch.long)
    return {"input_ids": ids, "decoder_input_ids": torch.cat([start, ids[:, :-1]], dim=1), "labels": ids}


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch["labels"].flatten())
