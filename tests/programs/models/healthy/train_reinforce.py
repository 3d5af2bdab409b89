"""REINFORCE on a one-dimensional line walk with a reward at the right end."""
import torch
import torch.nn as nn


def rollout(policy, length=15):
    position = torch.zeros(1)
    log_probs, rewards = [], []
    for t in range(length):
        state = torch.cat([position, torch.tensor([t / length])])
        dist = torch.distributions.Categorical(logits=policy(state))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        position = position + (0.2 if action.item() == 1 else -0.2)
        rewards.append(position.item() / length)
    return log_probs, rewards


def main(episodes=80, gamma=0.98):
    torch.set_num_threads(1)
    torch.manual_seed(490)
    policy = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    baseline = 0.0
    for episode in range(episodes):
        log_probs, rewards = rollout(policy)
        returns, running = [], 0.0
        for r in reversed(rewards):
            running = r + gamma * running
            returns.insert(0, running)
        returns = torch.tensor(returns)
        log_probs = torch.stack(log_probs)
        loss = -(log_probs * (returns - baseline)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        baseline = 0.9 * baseline + 0.1 * returns.mean().item()
        if episode % 20 == 0:
            print(f"episode {episode} return {sum(rewards):.3f}")


if __name__ == "__main__":
    main()
