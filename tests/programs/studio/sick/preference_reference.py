"""Direct preference optimization with a frozen reference model."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class Policy(nn.Module):
    def __init__(self, vocab=24, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.head(hidden)


def sequence_logps(model, ids, prompt):
    logps = F.log_softmax(model(ids[:, :-1]), dim=-1)
    picked = logps.gather(2, ids[:, 1:, None]).squeeze(2)
    return picked[:, prompt - 1 :].sum(1)


class PreferenceTrainer:
    def __init__(self, model, args):
        self.model = model
        self.reference = model
        self.reference.eval()
        self.beta = args.beta
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.model.train()

    def loss(self, chosen, rejected, prompt):
        policy = sequence_logps(self.model, chosen, prompt) - sequence_logps(
            self.model, rejected, prompt
        )
        reference = sequence_logps(self.reference, chosen, prompt) - sequence_logps(
            self.reference, rejected, prompt
        )
        return -F.logsigmoid(self.beta * (policy - reference)).mean()

    def step(self, chosen, rejected, prompt):
        loss = self.loss(chosen, rejected, prompt)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def pairs(n, vocab):
    prompt = torch.randint(0, vocab, (n, 4))
    good = (prompt[:, -1:] + torch.arange(1, 5)) % vocab
    bad = torch.randint(0, vocab, (n, 4))
    return torch.cat([prompt, good], 1), torch.cat([prompt, bad], 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer = PreferenceTrainer(Policy(), args)
    for step in range(args.steps):
        chosen, rejected = pairs(32, 24)
        loss = trainer.step(chosen, rejected, prompt=4)
        if step % 10 == 0:
            print(step, round(loss, 4))


if __name__ == "__main__":
    main()
