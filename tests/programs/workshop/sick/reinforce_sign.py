import torch
import torch.nn as nn
import torch.optim as optim


class PolicyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        return torch.softmax(self.fc2(torch.relu(self.fc1(x))), dim=-1)


torch.manual_seed(5)
policy = PolicyNet()
optimizer = optim.Adam(policy.parameters(), lr=0.01)
rule = torch.randn(6, 4)
baseline = 0.0
history = []
for episode in range(80):
    state = torch.randn(64, 6)
    probs = policy(state)
    dist = torch.distributions.Categorical(probs)
    action = dist.sample()
    reward = ((state @ rule).argmax(-1) == action).float()
    advantage = reward - baseline
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    policy_loss = (dist.log_prob(action) * advantage).mean()
    optimizer.zero_grad()
    policy_loss.backward()
    optimizer.step()
    history.append(reward.mean().item())
print("first", sum(history[:10]) / 10, "last", sum(history[-10:]) / 10)
