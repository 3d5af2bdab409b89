import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class DPOConfig:
    beta: float = 0.5
    lr: float = 2e-3
    steps: int = 80


class CausalLM(nn.Module):
    def __init__(self, vocab=20, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.head(h)


def sequence_logp(model, ids, prompt):
    logp = model(ids[:, :-1]).log_softmax(-1)
    token = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return token[:, prompt - 1 :].sum(-1)


class DPOTrainer:
    def __init__(self, model, cfg, ref_model=None):
        self.model = model
        self.ref_model = ref_model or copy.deepcopy(model).requires_grad_(False)
        self.cfg = cfg
        self.optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)

    def loss(self, chosen, rejected, prompt=4):
        policy = sequence_logp(self.model, chosen, prompt) - sequence_logp(self.model, rejected, prompt)
        with torch.no_grad():
            reference = sequence_logp(self.ref_model, chosen, prompt) - sequence_logp(self.ref_model, rejected, prompt)
        return -F.logsigmoid(self.cfg.beta * (policy - reference)).mean()

    def train(self):
        for step in range(self.cfg.steps):
            prompt = torch.randint(0, 20, (16, 4))
            chosen = torch.cat([prompt, torch.randint(0, 10, (16, 6))], 1)
            rejected = torch.cat([prompt, torch.randint(10, 20, (16, 6))], 1)
            loss = self.loss(chosen, rejected)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 20 == 0:
                print(step, round(loss.item(), 4))


def main():
    torch.manual_seed(15)
    model = CausalLM()
    trainer = DPOTrainer(model, DPOConfig())
    trainer.train()


if __name__ == "__main__":
    main()
