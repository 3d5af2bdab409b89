import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification


class GradualUnfreezer:
    def __init__(self, model, optimizer, rate, factor=0.5):
        self.optimizer = optimizer
        self.rate = rate
        self.factor = factor
        self.waiting = [model.vit.embeddings, *model.vit.layers]
        model.vit.requires_grad_(False)
        model.vit.layernorm.requires_grad_(True)

    def advance(self):
        if not self.waiting:
            return
        module = self.waiting.pop()
        module.requires_grad_(True)
        self.rate *= self.factor
        self.optimizer.add_param_group({"params": list(module.parameters()), "lr": self.rate})


class SlantedRates:
    def __init__(self, optimizer, epoch_steps):
        self.optimizer = optimizer
        self.epoch_steps = epoch_steps
        self.count = 0

    def step(self):
        self.count += 1
        share = (self.count % self.epoch_steps) / self.epoch_steps
        for group in self.optimizer.param_groups:
            base = group.setdefault("base_lr", group["lr"])
            group["lr"] = base * (0.4 + 0.6 * (1 - share))


def build_model():
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            image_size=16,
            patch_size=4,
            num_channels=1,
            num_labels=4,
        )
    )


def draw(count):
    labels = torch.randint(0, 4, (count,))
    images = 0.4 * torch.randn(count, 1, 16, 16)
    for index, label in enumerate(labels.tolist()):
        images[index, 0, 8 * (label // 2) : 8 * (label // 2) + 8, 8 * (label % 2) :][:, :8] += 1
    return TensorDataset(images, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(51)
    model = build_model()
    loader = DataLoader(draw(160), batch_size=16, shuffle=True)
    head = [*model.vit.layernorm.parameters(), *model.classifier.parameters()]
    optimizer = torch.optim.AdamW(head, lr=args.lr, weight_decay=0.01)
    unfreezer = GradualUnfreezer(model, optimizer, args.lr)
    rates = SlantedRates(optimizer, len(loader))
    for epoch in range(args.epochs):
        if epoch > 0:
            unfreezer.advance()
        for images, labels in loader:
            loss = model(images, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 2.0)
            optimizer.step()
            rates.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
