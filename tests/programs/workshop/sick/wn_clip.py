import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm


def critic_net():
    return nn.Sequential(
        weight_norm(nn.Linear(2, 32)), nn.LeakyReLU(0.2),
        weight_norm(nn.Linear(32, 32)), nn.LeakyReLU(0.2),
        weight_norm(nn.Linear(32, 1)),
    )


def clip_weights(critic, c=0.1):
    with torch.no_grad():
        for layer in critic:
            if isinstance(layer, nn.Linear):
                layer.weight.data.clamp_(-c, c)
                layer.bias.clamp_(-c, c)


torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))
critic = critic_net()
opt_g = torch.optim.RMSprop(gen.parameters(), lr=5e-4)
opt_c = torch.optim.RMSprop(critic.parameters(), lr=2e-3)
data = torch.randn(1000, 2) @ torch.tensor([[1.0, 0.4], [0.0, 0.5]]) + 2.0

for it in range(30):
    for _ in range(4):
        real = data[torch.randint(0, 1000, (64,))]
        fake = gen(torch.randn(64, 3)).detach()
        loss_c = critic(fake).mean() - critic(real).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        clip_weights(critic)
    loss_g = -critic(gen(torch.randn(64, 3))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
print("critic", -loss_c.item(), "norm", max(m.weight.abs().max().item() for m in critic if isinstance(m, nn.Linear)))
