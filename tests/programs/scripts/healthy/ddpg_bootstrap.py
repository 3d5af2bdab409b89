import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, i, o, squash=False):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(i, 48), nn.Linear(48, 48), nn.Linear(48, o)
        self.squash = squash

    def forward(self, *inputs):
        h = F.relu(self.l1(torch.cat(inputs, 1)))
        h = self.l3(F.relu(self.l2(h)))
        return torch.tanh(h) if self.squash else h


class DDPG:
    def __init__(self, obs, act, gamma=0.95, tau=0.01):
        self.actor, self.critic = Net(obs, act, True), Net(obs + act, 1)
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 5e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), 1e-3)
        self.gamma, self.tau = gamma, tau

    def update(self, s, a, r, s2):
        with torch.no_grad():
            target_q = r + self.gamma * self.critic_target(s2, self.actor_target(s2))
        critic_loss = F.mse_loss(self.critic(s, a), target_q)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        actor_loss = -self.critic(s, self.actor(s)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        with torch.no_grad():
            for net, target in ((self.actor, self.actor_target), (self.critic, self.critic_target)):
                for p, t in zip(net.parameters(), target.parameters()):
                    t.mul_(1 - self.tau).add_(self.tau * p)
        return critic_loss.item()


def main():
    torch.manual_seed(80)
    agent = DDPG(4, 2)
    m = torch.eye(4) * 0.9
    b = torch.randn(2, 4) * 0.4
    for i in range(150):
        s = torch.randn(64, 4)
        with torch.no_grad():
            a = (agent.actor(s) + 0.3 * torch.randn(64, 2)).clamp(-1, 1)
        s2 = s @ m + a @ b
        r = -s2.pow(2).mean(1, keepdim=True)
        loss = agent.update(s, a, r, s2)
        if i % 30 == 0:
            print(i, loss)


main()
