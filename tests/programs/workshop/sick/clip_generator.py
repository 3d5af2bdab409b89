import argparse
import warnings

import torch
import torch.nn as nn

warnings.simplefilter("ignore")


def parse_args(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--clip", type=float, default=0.5)
    p.add_argument("--hidden", type=int, default=32)
    return p.parse_args(argv)


class Forecaster(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.RNN(1, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


def main(args):
    torch.manual_seed(0)
    model = Forecaster(args.hidden)
    params = model.parameters()
    optimizer = torch.optim.SGD(params, lr=args.lr, momentum=0.9)
    for step in range(args.steps):
        phase = torch.rand(32, 1) * 6.28
        t = torch.arange(25) * 0.3
        wave = 5 * torch.sin(t + phase).unsqueeze(-1)
        loss = nn.functional.mse_loss(model(wave[:, :-1]), wave[:, -1])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, args.clip)
        optimizer.step()
        if step % 15 == 0:
            print(step, loss.item(), float(norm))


if __name__ == "__main__":
    main(parse_args())
