import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal


def mlp(inputs, outputs, hidden=48):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.net = mlp(state_dim, 2 * action_dim)

    def forward(self, state):
        mean, log_std = self.net(state).chunk(2, dim=-1)
        policy = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = policy.rsample()
        action = torch.tanh(raw)
        log_prob = policy.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(-1, keepdim=True)


class TwinCritic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.q1 = mlp(state_dim + action_dim, 1)
        self.q2 = mlp(state_dim + action_dim, 1)

    def forward(self, state, action):
        joined = torch.cat([state, action], dim=-1)
        return self.q1(joined), self.q2(joined)


class Agent:
    def __init__(self, state_dim=3, action_dim=1, gamma=0.95, tau=0.01, alpha=0.05):
        self.gamma, self.tau, self.alpha = gamma, tau, alpha
        self.actor = Actor(state_dim, action_dim)
        self.critic = TwinCritic(state_dim, action_dim)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def update(self, state, action, reward, next_state):
        with torch.no_grad():
            next_action, next_log_prob = self.actor(next_state)
            next_q = torch.min(*self.target(next_state, next_action))
            backup = reward + self.gamma * (next_q - self.alpha * next_log_prob)

        q1, q2 = self.critic(state, action)
        critic_loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
        critic_loss.backward()
        self.critic_opt.step()
        self.critic_opt.zero_grad()

        new_action, log_prob = self.actor(state)
        actor_loss = (self.alpha * log_prob - torch.min(*self.critic(state, new_action))).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.blend()
        return critic_loss.item(), actor_loss.item()

    @torch.no_grad()
    def blend(self):
        for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
            slow.lerp_(fast, self.tau)


def transitions(n):
    state = torch.randn(n, 3)
    action = torch.rand(n, 1) * 2 - 1
    next_state = state + 0.1 * torch.cat([state[:, 1:2], action, -state[:, 2:]], dim=1)
    reward = -(next_state[:, :1].pow(2) + 0.1 * action.pow(2))
    return state, action, reward, next_state


def main():
    torch.manual_seed(4)
    agent = Agent()
    memory = transitions(2000)
    for step in range(120):
        index = torch.randint(0, len(memory[0]), (64,))
        critic_loss, actor_loss = agent.update(*(part[index] for part in memory))
        if step % 30 == 0:
            print(f"{step}: critic {critic_loss:.3f} actor {actor_loss:.3f}")


if __name__ == "__main__":
    main()
