import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Ratings(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 12, generator=g)
        weight = torch.randn(12, generator=g)
        self.y = torch.sin(self.x @ weight) * 3

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"features": self.x[i], "rating": self.y[i]}


class Tower(nn.Module):
    def __init__(self, features, width, depth):
        super().__init__()
        layers = [nn.Linear(features, width), nn.SiLU()]
        for _ in range(depth):
            layers.extend([nn.Linear(width, width), nn.SiLU()])
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, features, rating):
        predicted = self.net(features).squeeze(-1)
        return nn.functional.huber_loss(predicted, rating)


def training_function(args):
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, cpu=True)
    set_seed(args.seed)
    model = Tower(12, 48, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(Ratings(384, args.seed), batch_size=16, shuffle=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.8)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(args.epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch)
                accelerator.backward(loss)
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--max-norm", type=float, default=0.04)
    parser.add_argument("--seed", type=int, default=29)
    training_function(parser.parse_args())


if __name__ == "__main__":
    main()
