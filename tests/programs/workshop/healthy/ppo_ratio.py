import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, n_actions))
        self.critic = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 1))

    def evaluate(self, obs, act):
        dist = Categorical(logits=self.actor(obs))
        return dist.log_prob(act), dist.entropy(), self.critic(obs).squeeze(-1)


class PPO:
    def __init__(self, eps=0.2, epochs=5):
        self.net = ActorCritic(4, 3)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-3)
        self.eps, self.epochs = eps, epochs

    @torch.no_grad()
    def rollout(self, n=96):
        obs = torch.randn(n, 4)
        act = Categorical(logits=self.net.actor(obs)).sample()
        reward = (act == obs[:, :3].argmax(-1)).float() + 0.1 * torch.randn(n)
        logp, _, value = self.net.evaluate(obs, act)
        return obs, act, reward, logp, value

    def update(self):
        obs, act, ret, logp_old, value = self.rollout()
        adv = ret - value
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(self.epochs):
            logp, entropy, v = self.net.evaluate(obs, act)
            ratio = torch.exp(logp - logp_old)
            clipped = torch.clamp(ratio, 1 - self.eps, 1 + self.eps)
            actor = -torch.min(ratio * adv, clipped * adv).mean()
            loss = actor + 0.5 * F.mse_loss(v, ret) - 0.01 * entropy.mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return ret.mean().item()


torch.manual_seed(0)
ppo = PPO()
for it in range(20):
    mean = ppo.update()
    if it % 5 == 4:
        print(it, round(mean, 3))
