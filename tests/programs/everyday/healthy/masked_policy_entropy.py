"""REINFORCE on a bandit whose illegal actions are masked."""

import torch
import torch.nn as nn

torch.manual_seed(31)
STATES, ACTIONS = 6, 5


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATES, hidden), nn.Tanh(), nn.Linear(hidden, ACTIONS))

    def forward(self, state, legal):
        logits = self.body(state).masked_fill(~legal, float("-inf"))
        return torch.softmax(logits, dim=-1)


def entropy(probs):
    return torch.special.entr(probs.clamp_min(1e-8)).sum(-1).mean()


payoff = torch.randn(STATES, ACTIONS)


def play(policy, n=64):
    index = torch.randint(STATES, (n,))
    state = torch.eye(STATES)[index]
    legal = torch.rand(n, ACTIONS) < 0.8
    legal[:, 0] = True
    probs = policy(state, legal)
    action = torch.multinomial(probs.detach(), 1)
    reward = payoff[index].gather(1, action).squeeze(1)
    chosen = probs.gather(1, action).squeeze(1)
    return probs, chosen, reward


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
baseline = 0.0
for update in range(60):
    try:
        probs, chosen, reward = play(policy)
    except RuntimeError as error:
        print("stopped:", error)
        break
    advantage = reward - baseline
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    loss = -(chosen.log() * advantage).mean() - 0.01 * entropy(probs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 15 == 0:
        print(f"update {update}: reward {reward.mean().item():.3f}")
