import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from network import build, make_data
from torch.optim.lr_scheduler import CosineAnnealingLR


class Engine:
    def __init__(self, model, lr, epochs, batch=32):
        self.model, self.epochs, self.batch = model, epochs, batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.scheduler = None
        self.lr = lr

    def fit(self, data):
        loader = torch.utils.data.DataLoader(data, self.batch, shuffle=True)
        if self.scheduler is None:
            self.scheduler = CosineAnnealingLR(self.optimizer, self.epochs * len(loader))
        for epoch in range(self.epochs):
            for x, y in loader:
                loss = F.smooth_l1_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
            print("epoch", epoch, "loss", round(loss.item(), 4))

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, nargs=2, default=[3, 4])
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(77)
    data = make_data()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "last.pt"
        first = Engine(build(), lr=args.lr, epochs=args.epochs[0])
        first.fit(data)
        first.save(checkpoint)
        second = Engine(build(), lr=args.lr, epochs=args.epochs[1])
        second.load(checkpoint)
        second.fit(data)


if __name__ == "__main__":
    main()
