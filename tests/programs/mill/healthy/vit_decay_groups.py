"""Train a small vision transformer with decoupled weight decay and a warm-up."""

import argparse
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification, get_cosine_schedule_with_warmup


@dataclass
class OptimConfig:
    """Settings of the optimizer."""

    lr: float = 2e-3
    weight_decay: float = 0.05
    warmup: int = 3
    no_decay: list[str] = field(default_factory=lambda: ["bias", "layernorm", "layer_norm"])


@dataclass
class Config:
    """Settings of a training."""

    classes: int = 5
    image_size: int = 16
    batch_size: int = 16
    epochs: int = 2
    optim: OptimConfig = field(default_factory=OptimConfig)


def parse_args() -> Config:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    return Config(epochs=args.epochs, batch_size=args.batch_size)


def build_model(config: Config) -> ViTForImageClassification:
    """Build a ViT at random initialisation."""
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=96,
            image_size=config.image_size,
            patch_size=4,
            num_labels=config.classes,
        )
    )


def build_data(config: Config, count: int) -> TensorDataset:
    """Draw images whose class is the position of a bright stripe."""
    labels = torch.randint(0, config.classes, (count,))
    images = 0.5 * torch.randn(count, 3, config.image_size, config.image_size)
    for index, label in enumerate(labels.tolist()):
        images[index, :, label * 3 : label * 3 + 2] += 1.5
    return TensorDataset(images, labels)


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """Group the parameters by whether their weights decay."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decayed = [p for name, p in named if not any(part in name for part in config.no_decay)]
    others = [p for name, p in named if any(part in name for part in config.no_decay)]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """Compute the share of images that are classified rightly."""
    model.eval()
    hits = [(model(images).logits.argmax(-1) == labels).float() for images, labels in loader]
    model.train()
    return torch.cat(hits).mean().item()


def main() -> None:
    """Train and evaluate."""
    torch.manual_seed(0)
    config = parse_args()
    model = build_model(config)
    train = DataLoader(build_data(config, 192), config.batch_size, shuffle=True)
    valid = DataLoader(build_data(config, 64), config.batch_size)
    optimizer = build_optimizer(model, config.optim)
    total = config.epochs * len(train)
    scheduler = get_cosine_schedule_with_warmup(optimizer, config.optim.warmup, total)
    for epoch in range(config.epochs):
        losses = []
        for images, labels in train:
            loss = model(images, labels=labels).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        print(epoch, sum(losses) / len(losses), accuracy(model, valid))


if __name__ == "__main__":
    main()
