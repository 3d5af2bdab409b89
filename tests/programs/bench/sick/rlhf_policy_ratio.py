"""Policy-gradient fine-tuning of a tiny language model with a clipped objective."""

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, LENGTH, CLIP = 20, 8, 0.2


class Policy(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def log_probs(policy, tokens):
    logp = F.log_softmax(policy(tokens[:, :-1]), dim=-1)
    return logp.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def generate(policy, n=32):
    tokens = torch.zeros(n, 1, dtype=torch.long)
    for _ in range(LENGTH):
        probs = policy(tokens)[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(probs, 1)], dim=1)
    return tokens


def reward(tokens):
    return (tokens[:, 1:] % 2 == 0).float().mean(dim=1)


def advantages(tokens):
    r = reward(tokens)
    return ((r - r.mean()) / (r.std() + 1e-6)).unsqueeze(1).expand(-1, LENGTH)


def policy_loss(policy, batch):
    new = log_probs(policy, batch["tokens"])
    old = log_probs(policy, batch["tokens"])
    ratio = torch.exp(new - old)
    unclipped = ratio * batch["advantages"]
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP) * batch["advantages"]
    return -torch.min(unclipped, clipped).mean()


def main():
    torch.manual_seed(6)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for iteration in range(8):
        tokens = generate(policy)
        with torch.no_grad():
            old = log_probs(policy, tokens)
        batch = {"tokens": tokens, "old_log_probs": old, "advantages": advantages(tokens)}
        for _ in range(3):
            loss = policy_loss(policy, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        print(f"iteration {iteration} reward {reward(tokens).mean().item():.3f} loss {loss.item():.4f}")


main()
