import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class ModelConfig:
    vocabulary: int = 48
    width: int = 32
    heads: int = 4
    depth: int = 2
    length: int = 16
    dropout: float = 0.1
    tie_weights: bool = True
    init_std: float = 0.02


class Copies(Dataset):
    def __init__(self, config, count):
        half = config.length // 2 + 1
        left = torch.randint(0, config.vocabulary, (count, half))
        self.rows = torch.cat([left, left], dim=1)[:, : config.length + 1]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.length, config.width)
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            4 * config.width,
            config.dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, config.depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.apply(self.init_weights)
        if config.tie_weights:
            self.tie()

    def init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.init_std)

    def tie(self):
        self.lm_head.weight = self.tokens.weight

    def forward(self, ids):
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.tokens(ids) + self.places.weight[:length]
        hidden = self.layers(hidden, mask=mask, is_causal=True)
        return self.lm_head(self.norm(hidden))


class LanguageTask:
    def __init__(self, config, args):
        self.model = Decoder(config)
        self.loader = DataLoader(Copies(config, 192), args.batch_size, shuffle=True)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01
        )
        warm = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.2, total_iters=4)
        rest = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, args.epochs * len(self.loader) - 4
        )
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(
            self.optimizer, [warm, rest], milestones=[4]
        )

    def epoch(self):
        total = 0.0
        for rows in self.loader:
            logits = self.model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            total += loss.item()
        return total / len(self.loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(24)
    task = LanguageTask(ModelConfig(), args)
    for epoch in range(args.epochs):
        print(epoch, task.epoch())


if __name__ == "__main__":
    main()
