import torch
import torch.nn as nn
from torch.distributions import Normal


def layer_init(layer, std=2**0.5, bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self, obs=4, act=2):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(obs, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), 1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(obs, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, act), 0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, act))

    def dist(self, x):
        mean = self.actor_mean(x)
        return Normal(mean, self.actor_logstd.expand_as(mean).exp())


class PointMass:
    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.state = torch.cat([torch.rand(self.n, 2) * 2 - 1, torch.zeros(self.n, 2)], 1)
        return self.state

    def step(self, action):
        velocity = 0.8 * self.state[:, 2:] + 0.2 * action.clamp(-1, 1)
        position = self.state[:, :2] + 0.2 * velocity
        self.state = torch.cat([position, velocity], 1)
        return self.state, -position.pow(2).sum(1)


def rollout(agent, env, steps):
    obs, actions, logps, rewards, values = [], [], [], [], []
    state = env.reset()
    with torch.no_grad():
        for _ in range(steps):
            dist = agent.dist(state)
            action = dist.sample()
            obs.append(state)
            actions.append(action)
            logps.append(dist.log_prob(action).sum(1))
            values.append(agent.critic(state).flatten())
            state, reward = env.step(action)
            rewards.append(reward)
        last = agent.critic(state).flatten()
        advantages, running = [], torch.zeros(env.n)
        for t in reversed(range(steps)):
            nxt = last if t == steps - 1 else values[t + 1]
            delta = rewards[t] + 0.95 * nxt - values[t]
            running = delta + 0.95 * 0.95 * running
            advantages.insert(0, running)
    advantages = torch.stack(advantages)
    returns = advantages + torch.stack(values)
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    return [flat(x) for x in (torch.stack(obs), torch.stack(actions), torch.stack(logps), advantages, returns)]


def update(agent, optimizer, batch, clip=0.2, ent_coef=0.01, vf_coef=0.5):
    obs, actions, logp_old, advantages, returns = batch
    order = torch.randperm(len(obs))
    for index in order.split(64):
        dist = agent.dist(obs[index])
        adv = advantages[index]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        with torch.no_grad():
            ratio = (dist.log_prob(actions[index]).sum(1) - logp_old[index]).exp()
        surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
        policy_loss = -surrogate.mean()
        value_loss = 0.5 * (agent.critic(obs[index]).flatten() - returns[index]).pow(2).mean()
        entropy = dist.entropy().sum(1).mean()
        loss = policy_loss + vf_coef * value_loss - ent_coef * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()


def main():
    torch.manual_seed(1)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    env = PointMass(16)
    updates = 8
    for u in range(updates):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - u / updates)
        batch = rollout(agent, env, 32)
        for _ in range(3):
            update(agent, optimizer, batch)
        print(u, "return", batch[4].mean().item())


if __name__ == "__main__":
    main()
