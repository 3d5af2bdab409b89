import collections
import random

import torch
from torch import nn

Transition = collections.namedtuple("Transition", "state action reward next_state done")


class Memory:
    def __init__(self, capacity):
        self.items = collections.deque(maxlen=capacity)

    def push(self, *values):
        self.items.append(Transition(*values))

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.items, n)))
        return (
            torch.stack(batch.state),
            torch.tensor(batch.action),
            torch.tensor(batch.reward),
            torch.stack(batch.next_state),
            torch.tensor(batch.done, dtype=torch.float32),
        )

    def __len__(self):
        return len(self.items)


class DuelingNet(nn.Module):
    def __init__(self, inputs, actions, hidden=64):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, actions)

    def forward(self, x):
        hidden = self.features(x)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)


def huber(error, delta=1.0):
    quadratic = error.abs().clamp(max=delta)
    linear = error.abs() - quadratic
    return (0.5 * quadratic**2 + delta * linear).mean()


def td_loss(online, target, batch, gamma=0.95):
    state, action, reward, next_state, done = batch
    chosen = online(state).gather(1, action[:, None])
    with torch.no_grad():
        best = online(next_state).argmax(dim=1, keepdim=True)
        future = target(next_state).gather(1, best).squeeze(1)
        expected = reward + gamma * (1 - done) * future
    td_error = expected - chosen
    return huber(td_error)


def environment_step(state, action):
    move = (action - 1) * 0.2
    next_state = state + torch.tensor([move, 0.1 * random.gauss(0, 1)])
    reward = -abs(next_state[0].item()) + 0.5 * state[1].item()
    return next_state, reward, abs(next_state[0].item()) > 2


def main():
    random.seed(2)
    torch.manual_seed(2)
    online, target = DuelingNet(2, 3), DuelingNet(2, 3)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.AdamW(online.parameters(), lr=1e-3)
    memory = Memory(2000)
    state = torch.randn(2)
    for step in range(260):
        action = random.randrange(3) if random.random() < 0.3 else online(state[None]).argmax().item()
        next_state, reward, done = environment_step(state, action)
        memory.push(state, action, reward, next_state, done)
        state = torch.randn(2) if done else next_state
        if len(memory) < 64:
            continue
        loss = td_loss(online, target, memory.sample(32))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 10.0)
        optimizer.step()
        if step % 50 == 0:
            target.load_state_dict(online.state_dict())
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
