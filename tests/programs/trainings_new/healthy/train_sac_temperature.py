import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self, obs=4, act=2):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(obs, 32), nn.ReLU(), nn.Linear(32, 2 * act))
        self.critic = nn.Sequential(nn.Linear(obs + act, 32), nn.ReLU(), nn.Linear(32, 1))
        self.log_alpha = nn.Parameter(torch.zeros(()))

    def act(self, obs):
        mu, log_std = self.policy(obs).chunk(2, -1)
        pi = torch.distributions.Normal(mu, log_std.clamp(-4, 1).exp())
        u = pi.rsample()
        logp = (pi.log_prob(u) - torch.log(1 - torch.tanh(u) ** 2 + 1e-5)).sum(-1)
        return torch.tanh(u), logp


torch.manual_seed(30)
agent = Agent()
critic_opt = torch.optim.Adam(agent.critic.parameters(), lr=5e-3)
policy_opt = torch.optim.Adam(agent.policy.parameters(), lr=2e-3)
alpha_opt = torch.optim.Adam([agent.log_alpha], lr=1e-2)
for step in range(100):
    obs = torch.rand(64, 4) * 2 - 1
    act = torch.rand(64, 2) * 2 - 1
    q = agent.critic(torch.cat([obs, act], -1)).squeeze(-1)
    critic_loss = (q + (act - obs[:, :2]).pow(2).sum(-1)).pow(2).mean()
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()

    for p in agent.critic.parameters():
        p.requires_grad_(False)
    new, logp = agent.act(obs)
    alpha = agent.log_alpha.exp()
    policy_loss = (alpha.detach() * logp - agent.critic(torch.cat([obs, new], -1)).squeeze(-1)).mean()
    policy_opt.zero_grad()
    policy_loss.backward()
    policy_opt.step()
    for p in agent.critic.parameters():
        p.requires_grad_(True)

    alpha_loss = -(agent.log_alpha * (logp.detach() - 2)).mean()
    agent.log_alpha.grad = None
    alpha_loss.backward()
    alpha_opt.step()
    if step % 25 == 24:
        print(step, critic_loss.item(), policy_loss.item(), alpha.item())
