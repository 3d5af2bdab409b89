import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Policy(nn.Module):
    def __init__(self, inputs=4, width=16, actions=2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, actions))

    def forward(self, x):
        return torch.tanh(self.net(x))


@torch.no_grad()
def episode(policy, steps=20):
    state = torch.tensor([[1.0, -1.0, 0.5, 0.0]]).repeat(8, 1)
    state = state + 0.1 * torch.linspace(-1, 1, 8)[:, None]
    reward = 0.0
    for _ in range(steps):
        action = policy(state)
        state = 0.95 * state + 0.2 * torch.cat([action, action.flip(1)], dim=1)
        reward -= state.pow(2).sum(1).mean().item()
    return reward


class Strategy:
    def __init__(self, policy, sigma=0.1, pairs=8):
        self.policy, self.sigma, self.pairs = policy, sigma, pairs
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)

    def step(self):
        centre = parameters_to_vector(self.policy.parameters()).detach().clone()
        estimate = torch.zeros_like(centre)
        for _ in range(self.pairs):
            direction = torch.randn_like(centre)
            rewards = []
            for sign in (1, -1):
                vector_to_parameters(centre + sign * self.sigma * direction, self.policy.parameters())
                rewards.append(episode(self.policy))
            estimate -= (rewards[0] - rewards[1]) / (2 * self.sigma * self.pairs) * direction
        vector_to_parameters(centre, self.policy.parameters())
        start = 0
        for parameter in self.policy.parameters():
            part = estimate[start : start + parameter.numel()]
            parameter.grad = part.view_as(parameter).clone()
            start += parameter.numel()
        self.optimizer.step()
        return episode(self.policy)


def main():
    torch.manual_seed(12)
    strategy = Strategy(Policy())
    for generation in range(30):
        reward = strategy.step()
        if generation % 10 == 0:
            print(f"{generation}: {reward:.3f}")


if __name__ == "__main__":
    main()
