import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.encoder = nn.GRU(24, 24, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(24, 3)

    def forward(self, tokens):
        _, h = self.encoder(self.embed(tokens))
        return self.head(self.dropout(h[-1]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(12)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulation, cpu=True)
    tokens = torch.randint(0, 30, (224, 8))
    loader = DataLoader(TensorDataset(tokens, tokens[:, -1] % 3), batch_size=8, shuffle=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(args.epochs):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.print(epoch, loss.item())


if __name__ == "__main__":
    main()
