import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(31)
policy = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def play():
    position, logps, rewards = 0, [], []
    for _ in range(12):
        state = nn.functional.one_hot(torch.tensor(position), 6).float()
        pi = Categorical(logits=policy(state))
        action = pi.sample()
        logps.append(pi.log_prob(action))
        position = max(0, position + (1 if action.item() else -1))
        rewards.append(float(position == 5) - 0.05)
        if position == 5:
            break
    return torch.stack(logps), rewards


baseline = 0.0
for episode in range(60):
    logps, rewards = play()
    returns = torch.tensor([sum(rewards[i:]) for i in range(len(rewards))])
    loss = -((returns - baseline) * logps).sum()
    baseline = 0.9 * baseline + 0.1 * sum(rewards)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 20 == 19:
        print(episode, baseline)
