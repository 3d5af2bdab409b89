import argparse
import torch
import torch.nn as nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=15)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--clip", type=float, default=0.2)
parser.add_argument("--vf-coef", type=float, default=0.5)
args = parser.parse_args()
torch.manual_seed(1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.pi = nn.Linear(64, 2)
        self.v = nn.Linear(64, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Rollout:
    """Contextual bandit with a state-dependent offset in the reward."""

    def collect(self, agent, n=128):
        obs = torch.randn(n, 4)
        with torch.no_grad():
            dist, value = agent(obs)
            act = dist.sample()
            right = (act == (obs[:, 0] > 0).long()).float()
            returns = (right + 2 * obs[:, 1]).unsqueeze(-1)
        return obs, act, dist.log_prob(act), value.reshape(n, 1), returns


agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
rollout = Rollout()
for it in range(args.iterations):
    obs, act, old_logp, old_value, returns = rollout.collect(agent)
    adv = (returns - old_value).squeeze(-1)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(args.epochs):
        dist, value = agent(obs)
        ratio = (dist.log_prob(act) - old_logp).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(1 - args.clip, 1 + args.clip) * adv).mean()
        vf = (returns - value).pow(2).mean()
        loss = pg + args.vf_coef * vf - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
    if it % 5 == 4:
        print(it, f"vf {vf.item():.3f} pg {pg.item():.3f}")
dist, value = agent(obs)
print("corr", torch.corrcoef(torch.stack([value.reshape(-1), returns.reshape(-1)]))[0, 1].item())
