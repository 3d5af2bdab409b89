import copy

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 20


class LanguageModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, dim)
        self.rnn = nn.LSTM(dim, dim, num_layers=2, batch_first=True)
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, ids):
        return self.head(self.rnn(self.embedding(ids))[0])


def log_likelihood(model, prompt, answer):
    ids = torch.cat([prompt, answer], dim=1)
    log_probs = model(ids[:, :-1]).log_softmax(dim=-1)
    of_answer = log_probs[:, prompt.shape[1] - 1 :]
    return of_answer.gather(2, answer[..., None]).squeeze(2).sum(dim=1)


def pretrain(model, steps=40):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        ids = (torch.randint(0, VOCABULARY, (32, 1)) + torch.arange(11)) % VOCABULARY
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def preferences(n=32):
    prompt = torch.randint(0, VOCABULARY, (n, 4))
    chosen = (prompt[:, -1:] + torch.arange(1, 5)) % VOCABULARY
    rejected = (prompt[:, -1:] - torch.arange(1, 5)) % VOCABULARY
    return prompt, chosen, rejected


class PreferenceTrainer:
    def __init__(self, policy, beta=0.2, lr=1e-3):
        self.policy = policy
        self.reference = copy.deepcopy(policy).eval().requires_grad_(False)
        self.beta = beta
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=lr)

    def step(self, prompt, chosen, rejected):
        margin = log_likelihood(self.policy, prompt, chosen) - log_likelihood(
            self.policy, prompt, rejected
        )
        with torch.no_grad():
            expected = log_likelihood(self.reference, prompt, chosen) - log_likelihood(
                self.reference, prompt, rejected
            )
        loss = -F.logsigmoid(self.beta * (margin - expected)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(25)
    policy = LanguageModel()
    pretrain(policy)
    trainer = PreferenceTrainer(policy)
    for step in range(60):
        loss = trainer.step(*preferences())
        if step % 15 == 0:
            print(f"{step}: {loss:.4f}")


if __name__ == "__main__":
    main()
