import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

torch.manual_seed(24)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(64, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = torch.relu(self.dropout(self.affine1(x)))
        return torch.softmax(self.affine2(x), dim=1)


class Cart:
    def reset(self):
        self.state = (torch.rand(4) - 0.5) * 0.1
        self.t = 0
        return self.state

    def step(self, action):
        x, v, angle, rate = self.state.tolist()
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * rate**2 * angle) / 1.1
        turn = (9.8 * angle - push) / 0.65
        self.state = torch.tensor([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * rate, rate + 0.02 * turn])
        self.t += 1
        failed = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2
        return self.state, 1.0, bool(failed) or self.t >= 60


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = 1e-8
gamma = 0.99


def select_action(state):
    probs = policy(state.unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    returns = []
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    log_probs = torch.tensor([p.item() for p in policy.saved_log_probs], requires_grad=True)
    policy_loss = -(log_probs * returns).sum()
    optimizer.zero_grad()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return policy_loss.item()


def main():
    env = Cart()
    running = 10.0
    for episode in range(25):
        state, total = env.reset(), 0.0
        done = False
        while not done:
            action = select_action(state)
            state, reward, done = env.step(action)
            policy.rewards.append(reward)
            total += reward
        running = 0.05 * total + 0.95 * running
        loss = finish_episode()
        if episode % 8 == 0:
            print(f"Episode {episode}\tLast reward: {total:.0f}\tAverage: {running:.2f}\tloss {loss:.3f}")


if __name__ == "__main__":
    main()
