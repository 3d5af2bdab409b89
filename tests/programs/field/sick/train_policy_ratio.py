import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, states=6, actions=4):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(states, 32), nn.Tanh(), nn.Linear(32, actions))
        self.critic = nn.Sequential(nn.Linear(states, 32), nn.Tanh(), nn.Linear(32, 1))

    def act(self, obs):
        dist = Categorical(logits=self.actor(obs))
        action = dist.sample()
        return action, dist.log_prob(action), self.critic(obs).squeeze(-1)


def collect(model, n=128):
    obs = torch.randn(n, 6)
    action, logp, value = model.act(obs)
    reward = (action == obs[:, :4].argmax(1)).float()
    return {"obs": obs, "action": action, "logp": logp, "value": value, "reward": reward}


def ppo_loss(batch, clip=0.2):
    advantage = (batch["reward"] - batch["value"]).detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    old_logp = batch["logp"]
    ratio = torch.exp(batch["logp"] - old_logp)
    policy = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    value = 0.5 * ((batch["value"] - batch["reward"]) ** 2).mean()
    return policy + value


def train(iterations=120):
    torch.manual_seed(8)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-5)
    for i in range(iterations):
        batch = collect(model)
        loss = ppo_loss(batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if i % 30 == 29:
            print(i, "reward", round(batch["reward"].mean().item(), 3))
    return model


if __name__ == "__main__":
    train()
