import torch
from torch import nn

torch.manual_seed(9)
policy = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.RMSprop(policy.parameters(), lr=3e-3)
obs_all = torch.randn(512, 5)
expert = obs_all @ torch.randn(5, 2)
for update in range(80):
    rows = torch.randint(0, 512, (64,))
    error = policy(obs_all[rows]) - expert[rows]
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), max_norm=1.0)
    optimizer.step()
    if update % 16 == 15:
        print("update", update, "loss", float(loss))
