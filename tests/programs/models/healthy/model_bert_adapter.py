"""Adapter tuning of a BERT encoder: the encoder stays fixed, bottleneck adapters and the classifier are trained."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import BertConfig, BertModel


class Adapter(nn.Module):
    def __init__(self, dense, dim, bottleneck=8):
        super().__init__()
        self.dense = dense
        self.down = nn.Linear(dim, bottleneck)
        self.up = nn.Linear(bottleneck, dim)
        nn.init.normal_(self.up.weight, std=0.02)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        h = self.dense(x)
        return h + self.up(F.gelu(self.down(h)))


class AdapterClassifier(nn.Module):
    def __init__(self, dim=32, n_classes=4):
        super().__init__()
        config = BertConfig(vocab_size=80, hidden_size=dim, num_hidden_layers=2, num_attention_heads=4,
                            intermediate_size=64, max_position_embeddings=32,
                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.bert.requires_grad_(False)
        for layer in self.bert.encoder.layer:
            layer.output.dense = Adapter(layer.output.dense, dim)
        self.classifier = nn.Linear(dim, n_classes)

    def forward(self, input_ids, attention_mask, labels=None):
        hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return self.classifier(hidden[:, 0])


def build_model():
    torch.manual_seed(21)
    return AdapterClassifier()


def build_batch():
    g = torch.Generator().manual_seed(22)
    ids = torch.randint(1, 80, (12, 14), generator=g)
    lengths = torch.randint(6, 15, (12,), generator=g)
    mask = (torch.arange(14)[None] < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": torch.randint(0, 4, (12,), generator=g)}


def loss_fn(output, batch):
    return F.cross_entropy(output, batch["labels"])
