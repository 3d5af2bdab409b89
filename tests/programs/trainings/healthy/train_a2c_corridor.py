import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(61)
BATCH, LENGTH, GAMMA = 48, 10, 0.95

actor = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2))
critic = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=4e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=8e-3)


def play():
    x = torch.rand(BATCH) * 2 - 1
    goal = torch.where(torch.rand(BATCH) > 0.5, 1.0, -1.0)
    states, log_probs, rewards = [], [], []
    for k in range(LENGTH):
        s = torch.stack([x, goal, torch.full_like(x, k / LENGTH)], 1)
        logits = F.log_softmax(actor(s), dim=1)
        a = torch.multinomial(logits.detach().exp(), 1)
        log_probs.append(logits.gather(1, a).squeeze(1))
        x = (x + 0.25 * (2 * a.squeeze(1) - 1)).clamp(-1.5, 1.5)
        states.append(s)
        rewards.append(1 - (x - goal).abs())
    return torch.stack(states), torch.stack(log_probs), torch.stack(rewards)


def discounted(rewards):
    out, acc = torch.zeros_like(rewards), torch.zeros(BATCH)
    for k in range(LENGTH - 1, -1, -1):
        acc = rewards[k] + GAMMA * acc
        out[k] = acc
    return out


for episode in range(80):
    states, log_probs, rewards = play()
    returns = discounted(rewards)
    values = critic(states).squeeze(-1)
    value_loss = F.smooth_l1_loss(values, returns)
    adv = returns - values.detach()
    policy_loss = -(log_probs * adv).mean()
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    (policy_loss + value_loss).backward()
    actor_opt.step()
    critic_opt.step()
    if episode % 10 == 0:
        print(f"{episode:3d} reward {rewards.mean().item():+.3f} value loss {value_loss.item():.4f}")
