"""Fine-tunes a BERT encoder for paragraphs with a classifier over pooled windows."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel


class ParagraphClassifier(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        config = BertConfig(
            vocab_size=400,
            hidden_size=64,
            num_hidden_layers=12,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.attention = nn.Linear(64, 1)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, classes))

    def features(self, tokens, mask):
        return self.encoder(tokens, attention_mask=mask).last_hidden_state

    def forward(self, tokens, mask):
        states = self.features(tokens, mask)
        score = self.attention(states).squeeze(-1).masked_fill(mask == 0, -1e4)
        pooled = torch.einsum("bt,btc->bc", score.softmax(dim=1), states)
        return self.head(pooled)


def build_model():
    torch.manual_seed(53)
    return ParagraphClassifier()


def build_batch():
    torch.manual_seed(54)
    mask = torch.ones(6, 32, dtype=torch.long)
    mask[2, 20:] = 0
    mask[4, 11:] = 0
    return (torch.randint(1, 400, (6, 32)), mask), torch.randint(0, 6, (6,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])


def build_optimizer(model):
    rest = [*model.attention.parameters(), *model.head.parameters()]
    groups = [{"params": model.encoder.parameters(), "lr": 2e-5}, {"params": rest, "lr": 1e-3}]
    return torch.optim.AdamW(groups, weight_decay=0.01)
