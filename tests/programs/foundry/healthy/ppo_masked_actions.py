"""PPO on a grid of coins where some moves are forbidden."""
import torch
import torch.nn.functional as F
from torch import nn

SIZE, MOVES = 5, 4


class Grid:
    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.pos = torch.randint(0, SIZE, (self.n, 2))
        self.coin = torch.randint(0, SIZE, (self.n, 2))

    def observe(self):
        both = torch.cat([self.pos, self.coin], 1)
        allowed = torch.stack(
            [self.pos[:, 0] > 0, self.pos[:, 0] < SIZE - 1, self.pos[:, 1] > 0, self.pos[:, 1] < SIZE - 1], 1
        )
        return both.float() / SIZE, allowed

    def step(self, action):
        delta = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1]])[action]
        before = (self.pos - self.coin).abs().sum(1)
        self.pos = (self.pos + delta).clamp(0, SIZE - 1)
        return (before - (self.pos - self.coin).abs().sum(1)).float()


class ActorCritic(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi, self.v = nn.Linear(width, MOVES), nn.Linear(width, 1)

    def forward(self, obs, allowed):
        h = self.body(obs)
        logits = self.pi(h).masked_fill(~allowed, float("-inf"))
        return logits, self.v(h).squeeze(-1)


def rollout(env, net, steps=8):
    data = []
    for _ in range(steps):
        obs, allowed = env.observe()
        with torch.no_grad():
            logits, value = net(obs, allowed)
            action = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
            logp = logits.log_softmax(-1).gather(1, action[:, None]).squeeze(1)
        reward = env.step(action)
        data.append((obs, allowed, action, logp, reward - value, reward))
    return [torch.cat(column) for column in zip(*data)]


def update(net, optimizer, batch, clip=0.2, beta=0.01):
    obs, allowed, action, old_logp, advantage, ret = batch
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    for _ in range(3):
        logits, value = net(obs, allowed)
        probs = logits.softmax(-1)
        logp = probs.gather(1, action[:, None]).squeeze(1).log()
        ratio = (logp - old_logp).exp()
        policy = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        entropy = -(probs * probs.clamp_min(1e-8).log()).sum(-1).mean()
        loss = policy + 0.5 * F.mse_loss(value, ret) - beta * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(110)
    env, net = Grid(32), ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for it in range(6):
        env.reset()
        try:
            loss = update(net, optimizer, rollout(env, net))
        except RuntimeError:
            print(f"iteration {it}: sampling failed")
            break
        print(f"iteration {it}: {loss:.4f}")


if __name__ == "__main__":
    main()
