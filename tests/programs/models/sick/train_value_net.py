"""Fits a state-value network to discounted returns of a random walk."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def episode(length=40, gamma=0.9):
    moves = torch.randn(length, 3) * 0.3
    states = moves.cumsum(dim=0)
    rewards = states[:, 0] - 0.1 * states[:, 1] ** 2
    returns = torch.zeros(length)
    running = 0.0
    for t in reversed(range(length)):
        running = rewards[t] + gamma * running
        returns[t] = running
    return states, returns


def main(steps=100):
    torch.set_num_threads(1)
    torch.manual_seed(430)
    value = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(value.parameters(), lr=5e-3)
    for step in range(steps):
        states, returns = episode()
        prediction = value(states)
        loss = F.mse_loss(prediction, returns)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(value.parameters(), 10.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
