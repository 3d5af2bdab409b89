"""PPO on a small vectorised line-walk."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

N_ENV, HORIZON, GOAL = 32, 12, 6


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.Tanh(), nn.Linear(32, o))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = mlp(2, 3)
        self.critic = mlp(2, 1)

    def policy(self, obs):
        return Categorical(logits=self.actor(obs))

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


def observe(pos, t):
    return torch.stack([pos / GOAL, torch.full_like(pos, t / HORIZON)], dim=-1)


@torch.no_grad()
def rollout(agent):
    pos = torch.zeros(N_ENV)
    obs_l, act_l, logp_l, rew_l, val_l = [], [], [], [], []
    for t in range(HORIZON):
        obs = observe(pos, t)
        dist = agent.policy(obs)
        act = dist.sample()
        pos = (pos + act - 1).clamp(-GOAL, GOAL)
        obs_l.append(obs); act_l.append(act); logp_l.append(dist.log_prob(act))
        rew_l.append(pos / GOAL); val_l.append(agent.value(obs))
    adv, ret, gae = [], [], torch.zeros(N_ENV)
    for t in reversed(range(HORIZON)):
        nxt = val_l[t + 1] if t + 1 < HORIZON else torch.zeros(N_ENV)
        gae = rew_l[t] + 0.98 * nxt - val_l[t] + 0.98 * 0.95 * gae
        adv.insert(0, gae); ret.insert(0, gae + val_l[t])
    flat = lambda xs: torch.stack(xs).flatten(0, 1)
    return dict(obs=flat(obs_l), act=flat(act_l), logp=flat(logp_l), adv=flat(adv), ret=flat(ret)), torch.stack(rew_l).sum(0).mean().item()


def update(agent, opt, data, epochs=4, clip=0.2):
    adv = (data["adv"] - data["adv"].mean()) / (data["adv"].std() + 1e-8)
    for _ in range(epochs):
        dist = agent.policy(data["obs"])
        logp = dist.log_prob(data["act"])
        old_logp = dist.log_prob(data["act"])
        ratio = (logp - old_logp).exp()
        policy_loss = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
        value_loss = (agent.value(data["obs"]) - data["ret"]).pow(2).mean()
        opt.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        opt.step()
    return value_loss.item()


def main():
    torch.manual_seed(51)
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=5e-3)
    for it in range(30):
        data, score = rollout(agent)
        v = update(agent, opt, data)
        if it % 5 == 0:
            print(f"iter {it} return {score:.2f} value loss {v:.3f}")


main()
