import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(i, o, act=nn.Identity):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o), act())


class TD3Lite:
    def __init__(self, obs=3, act=1, tau=0.05):
        self.actor, self.q1, self.q2 = mlp(obs, act, nn.Tanh), mlp(obs + act, 1), mlp(obs + act, 1)
        self.targets = copy.deepcopy([self.actor, self.q1, self.q2])
        for m in self.targets:
            m.requires_grad_(False)
        self.opt_pi = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.opt_q = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=2e-3)
        self.tau, self.it = tau, 0

    def update(self, s, a, r, s2):
        ta, tq1, tq2 = self.targets
        with torch.no_grad():
            a2 = (ta(s2) + 0.1 * torch.randn_like(a)).clamp(-1, 1)
            sa2 = torch.cat([s2, a2], 1)
            y = r + 0.9 * torch.min(tq1(sa2), tq2(sa2))
        sa = torch.cat([s, a], 1)
        q_loss = F.mse_loss(self.q1(sa), y) + F.mse_loss(self.q2(sa), y)
        self.opt_q.zero_grad()
        q_loss.backward()
        self.opt_q.step()
        self.it += 1
        if self.it % 2 == 0:
            for p in self.q1.parameters():
                p.requires_grad_(False)
            pi_loss = -self.q1(torch.cat([s, self.actor(s)], 1)).mean()
            self.opt_pi.zero_grad()
            pi_loss.backward()
            self.opt_pi.step()
            for p in self.q1.parameters():
                p.requires_grad_(True)
            with torch.no_grad():
                for t, m in zip(self.targets, [self.actor, self.q1, self.q2]):
                    for pt, pm in zip(t.parameters(), m.parameters()):
                        pt.lerp_(pm, self.tau)
        return q_loss.item()


torch.manual_seed(0)
agent = TD3Lite()
for it in range(100):
    s = torch.randn(64, 3)
    with torch.no_grad():
        a = (agent.actor(s) + 0.3 * torch.randn(64, 1)).clamp(-1, 1)
    s2 = 0.8 * s + 0.2 * a
    loss = agent.update(s, a, -s2.pow(2).sum(1, keepdim=True), s2)
print(loss)
