import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import RobertaConfig, RobertaModel


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0, dropout=0.05):
        super().__init__()
        self.base = base
        self.dropout = nn.Dropout(dropout)
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        low = F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b)
        return self.base(x) + self.scale * low


def add_lora(module, targets, rank):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and name in targets:
            setattr(module, name, LoraLinear(child, rank))
        else:
            add_lora(child, targets, rank)


def mark_trainable(model, bias="none"):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name
    if bias == "all":
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.requires_grad = True


class Tagger(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.encoder = RobertaModel(
            RobertaConfig(
                vocab_size=80,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=64,
                max_position_embeddings=24,
                pad_token_id=1,
            ),
            add_pooling_layer=False,
        )
        self.classifier = nn.Linear(32, classes)

    def forward(self, ids):
        return self.classifier(self.encoder(ids).last_hidden_state)


def draw(count, classes):
    ids = torch.randint(2, 80, (count, 14))
    tags = (ids + ids.roll(1, 1)) % classes
    return TensorDataset(ids, tags)


def summary(model):
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    return f"{trained} of {total} parameters are trained"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Tagger(args.classes)
    add_lora(model.encoder, {"query", "value"}, args.rank)
    mark_trainable(model)
    print(summary(model))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    loader = DataLoader(draw(128, args.classes), batch_size=16, shuffle=True)
    for epoch in range(args.epochs):
        for ids, tags in loader:
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
