import torch
from torch import nn
from torch.distributions import Categorical


class ChainEnv:
    def __init__(self, count, length=10):
        self.count, self.length = count, length
        self.at = torch.randint(0, length, (count,))

    def observe(self):
        return nn.functional.one_hot(self.at, self.length).float()

    def step(self, action):
        self.at = (self.at + 2 * action - 1).clamp(0, self.length - 1)
        done = self.at == self.length - 1
        reward = done.float() - 0.02
        self.at = torch.where(done, torch.zeros_like(self.at), self.at)
        return self.observe(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, obs, actions, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi = nn.Linear(width, actions)
        self.v = nn.Linear(width, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)
        nn.init.orthogonal_(self.v.weight, 1.0)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


@torch.no_grad()
def rollout(model, env, obs, horizon, gamma=0.97, lam=0.95):
    memory = []
    for _ in range(horizon):
        policy, value = model(obs)
        action = policy.sample()
        following, reward, done = env.step(action)
        memory.append((obs, action, policy.log_prob(action), value, reward, done))
        obs = following
    _, after = model(obs)
    states, actions, logps, values, rewards, dones = map(torch.stack, zip(*memory))
    advantages = torch.zeros_like(rewards)
    carry = torch.zeros(env.count)
    for t in reversed(range(horizon)):
        alive = 1 - dones[t]
        delta = rewards[t] + gamma * after * alive - values[t]
        carry = delta + gamma * lam * alive * carry
        advantages[t] = carry
        after = values[t]
    batch = (states, actions, logps, values, advantages, advantages + values)
    return obs, [x.flatten(0, 1) for x in batch]


def update(model, optimizer, batch, epochs=4, size=64, clip=0.2, target_kl=0.02):
    states, actions, old, values, advantages, returns = batch
    for _ in range(epochs):
        for rows in torch.randperm(len(states)).split(size):
            policy, v = model(states[rows])
            log_ratio = policy.log_prob(actions[rows]) - old[rows]
            ratio = log_ratio.exp()
            with torch.no_grad():
                kl = ((ratio - 1) - log_ratio).mean()
            adv = advantages[rows]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            surrogate = torch.max(-adv * ratio, -adv * ratio.clamp(1 - clip, 1 + clip)).mean()
            clipped = values[rows] + (v - values[rows]).clamp(-clip, clip)
            value_loss = 0.5 * torch.max((v - returns[rows]) ** 2, (clipped - returns[rows]) ** 2).mean()
            loss = surrogate + 0.5 * value_loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        if kl > target_kl:
            break
    return loss.item(), kl.item()


def main(updates=5):
    torch.manual_seed(41)
    env = ChainEnv(8)
    model = ActorCritic(10, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-3, eps=1e-5)
    obs = env.observe()
    for i in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = 2.5e-3 * (1 - i / updates)
        obs, batch = rollout(model, env, obs, 32)
        loss, kl = update(model, optimizer, batch)
        print(f"{i} loss {loss:.4f} kl {kl:.5f}")


main()
