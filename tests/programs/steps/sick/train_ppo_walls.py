"""PPO on a corridor with walls, with the policy before each update kept aside."""

import copy

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self, states=9, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, 32), nn.Tanh())
        self.actor = nn.Linear(32, actions)
        self.critic = nn.Linear(32, 1)

    def forward(self, state):
        h = self.body(state)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def rollout(policy, steps=64, states=9):
    position, record = 4, []
    with torch.no_grad():
        for _ in range(steps):
            state = nn.functional.one_hot(torch.tensor(position), states).float()
            action = policy(state)[0].sample()
            position = min(max(position + int(action) - 1, 0), states - 1)
            reward = 1.0 if position == states - 1 else -0.02
            record.append((state, action, reward))
            position = 4 if position == states - 1 else position
    state, action, reward = zip(*record)
    returns, total = [], 0.0
    for value in reversed(reward):
        total = value + 0.9 * total
        returns.append(total)
    return torch.stack(state), torch.stack(action), torch.tensor(returns[::-1])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    policy = Policy()
    policy_old = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for update in range(8):
        states, actions, returns = rollout(policy_old)
        with torch.no_grad():
            before, values = policy_old(states)
            log_before = before.log_prob(actions)
        advantage = returns - values
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(4):
            now, value = policy(states)
            ratio = (now.log_prob(actions) - log_before).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = (
                -gain.mean() + 0.5 * (value - returns).square().mean() - 0.01 * now.entropy().mean()
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy_old.parameters(), 0.5)
            optimizer.step()
        policy_old.load_state_dict(policy.state_dict())
        print(f"update {update} return {returns.mean():.3f}")


main()
