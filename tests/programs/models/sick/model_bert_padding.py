"""Sentence-pair scorer on padded batches with a small BERT encoder and masked mean pooling."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import BertConfig, BertModel


class PairScorer(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        config = BertConfig(vocab_size=60, hidden_size=dim, num_hidden_layers=2, num_attention_heads=4,
                            intermediate_size=64, max_position_embeddings=24,
                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.out = nn.Linear(dim, 1)

    def forward(self, input_ids, attention_mask, token_type_ids, score=None):
        hidden = self.bert(input_ids, token_type_ids=token_type_ids).last_hidden_state
        weight = attention_mask.unsqueeze(-1).float()
        return self.out((hidden * weight).sum(dim=1) / weight.sum(dim=1)).squeeze(-1)


def build_model():
    torch.manual_seed(541)
    return PairScorer()


def build_batch():
    g = torch.Generator().manual_seed(542)
    lengths = torch.randint(6, 17, (12,), generator=g)
    mask = (torch.arange(16)[None] < lengths[:, None]).long()
    ids = torch.randint(1, 60, (12, 16), generator=g) * mask
    types = (torch.arange(16)[None] >= lengths[:, None] // 2).long() * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "score": torch.rand(12, generator=g)}


def loss_fn(output, batch):
    return F.binary_cross_entropy_with_logits(output, batch["score"])
