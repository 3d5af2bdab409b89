import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForTokenClassification, get_linear_schedule_with_warmup


@dataclass
class RateConfig:
    head: float = 2e-3
    decay: float = 0.7
    weight_decay: float = 0.01
    warmup: int = 4


def depth_of(name, layers):
    if name.startswith("bert.embeddings"):
        return 0
    match = re.match(r"bert\.encoder\.layer\.(\d+)\.", name)
    return int(match[1]) + 1 if match else layers + 1


def groups(model, config):
    layers = model.config.num_hidden_layers
    table = {}
    for name, parameter in model.named_parameters():
        depth = depth_of(name, layers)
        decays = parameter.ndim > 1
        key = (depth, decays)
        if key not in table:
            rate = config.head * config.decay ** (layers + 1 - depth)
            table[key] = {
                "params": [],
                "lr": rate,
                "weight_decay": config.weight_decay if decays else 0.0,
            }
        table[key]["params"].append(parameter)
    return [table[key] for key in sorted(table)]


def reinitialise(model, count):
    for layer in model.bert.encoder.layer[-count:]:
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.05)
                nn.init.zeros_(module.bias)


def draw(count):
    ids = torch.randint(2, 60, (count, 12))
    tags = (ids + ids.roll(-1, 1)) % 3
    tags[:, 0] = -100
    return TensorDataset(ids, tags)


def main():
    torch.manual_seed(50)
    config = RateConfig()
    model = BertForTokenClassification(
        BertConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=16,
            num_labels=3,
        )
    )
    reinitialise(model, 1)
    optimizer = torch.optim.AdamW(groups(model, config))
    loader = DataLoader(draw(160), batch_size=16, shuffle=True)
    scheduler = get_linear_schedule_with_warmup(optimizer, config.warmup, 2 * len(loader))
    for epoch in range(2):
        for ids, tags in loader:
            loss = model(ids, labels=tags).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        print(epoch, loss.item(), [round(rate, 6) for rate in scheduler.get_last_lr()][:3])


if __name__ == "__main__":
    main()
