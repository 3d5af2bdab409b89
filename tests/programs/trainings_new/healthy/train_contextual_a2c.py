import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(28)


class ActorCritic(nn.Module):
    def __init__(self, obs=4, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.pi = nn.Linear(32, actions)
        self.v = nn.Linear(32, 1)

    def forward(self, s):
        h = self.body(s)
        return Categorical(logits=self.pi(h)), self.v(h)


net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for update in range(120):
    s = torch.randn(48, 4)
    pi, v = net(s)
    a = pi.sample()
    returns = (a == s[:, :3].argmax(1)).float() + 0.1 * torch.randn(48)
    v = v.squeeze(-1)
    advantage = returns - v
    policy_loss = -(pi.log_prob(a) * advantage.detach()).mean()
    value_loss = advantage.pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * pi.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 30 == 29:
        print(update, returns.mean().item(), value_loss.item())
