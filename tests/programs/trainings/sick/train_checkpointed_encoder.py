import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")


class EncoderConfig:
    vocab_size = 40
    hidden_size = 32
    num_heads = 4
    num_layers = 2
    max_len = 16
    num_labels = 4


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_len, config.hidden_size)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(config.hidden_size, config.num_heads, 64, dropout=0.0,
                                       batch_first=True, norm_first=True)
            for _ in range(config.num_layers))
        self.gradient_checkpointing = False

    def forward(self, input_ids):
        h = self.embeddings(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(layer, h, use_reentrant=True)
            else:
                h = layer(h)
        return h


class ForSequenceClassification(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = Encoder(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def freeze_embeddings(self):
        self.encoder.embeddings.requires_grad_(False)
        self.encoder.positions.requires_grad_(False)

    def forward(self, input_ids, labels):
        logits = self.classifier(self.encoder(input_ids)[:, 0])
        return F.cross_entropy(logits, labels), logits


def batches(config, steps, g):
    for _ in range(steps):
        ids = torch.randint(0, config.vocab_size, (32, config.max_len), generator=g)
        labels = ids[:, 0] // 10
        yield ids, labels


def main():
    torch.manual_seed(181)
    config = EncoderConfig()
    model = ForSequenceClassification(config)
    model.freeze_embeddings()
    model.encoder.gradient_checkpointing = True
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    for step, (ids, labels) in enumerate(batches(config, 100, torch.Generator().manual_seed(182))):
        loss, logits = model(ids, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, round(loss.item(), 4))


main()
