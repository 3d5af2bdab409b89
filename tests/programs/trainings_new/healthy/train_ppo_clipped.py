import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(77)
actor = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
for it in range(25):
    obs = torch.randn(128, 5)
    with torch.no_grad():
        pi = Categorical(logits=actor(obs))
        act = pi.sample()
        old = pi.log_prob(act)
        ret = (act == obs[:, :3].argmax(1)).float()
        adv = ret - critic(obs).squeeze(-1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(3):
        for rows in torch.randperm(128).split(32):
            pi = Categorical(logits=actor(obs[rows]))
            ratio = (pi.log_prob(act[rows]) - old[rows]).exp()
            a = adv[rows]
            policy = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            value = (critic(obs[rows]).squeeze(-1) - ret[rows]).pow(2).mean()
            optimizer.zero_grad()
            (policy + 0.5 * value - 0.01 * pi.entropy().mean()).backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimizer.step()
    if it % 5 == 4:
        print(it, ret.mean().item(), value.item())
