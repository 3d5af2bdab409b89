"""On-policy GRPO: the ratio is exp(logp - logp.detach()), and a reference policy regularizes."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, LENGTH, GROUP = 16, 6, 8


class Policy(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def token_log_probs(policy, tokens):
    logits = policy(tokens[:, :-1]).log_softmax(-1)
    return logits.gather(2, tokens[:, 1:, None]).squeeze(2)


@torch.no_grad()
def sample(policy, prompts):
    tokens = prompts.repeat_interleave(GROUP, 0)
    for _ in range(LENGTH):
        tokens = torch.cat([tokens, torch.multinomial(policy(tokens)[:, -1].softmax(-1), 1)], 1)
    return tokens


def grpo_loss(policy, reference, tokens, beta=0.02):
    reward = (tokens[:, 1:] == tokens[:, :1]).float().sum(1) + (tokens[:, 1:] % 2 == 0).float().mean(1)
    grouped = reward.view(-1, GROUP)
    advantage = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    logp = token_log_probs(policy, tokens)
    with torch.no_grad():
        ref = token_log_probs(reference, tokens)
    mask = (tokens[:, 1:] != 0).float()
    kl = (ref - logp).exp() - (ref - logp) - 1
    per_token = -((logp - logp.detach()).exp() * advantage - beta * kl)
    return ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean(), reward.mean()


def main():
    torch.manual_seed(5)
    policy = Policy()
    reference = copy.deepcopy(policy).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=4e-3)
    for it in range(15):
        prompts = torch.randint(1, VOCAB, (6, 1))
        loss, reward = grpo_loss(policy, reference, sample(policy, prompts))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        if it % 5 == 0:
            print(f"{it}: loss {loss.item():+.5f} reward {reward.item():.3f}")


main()
