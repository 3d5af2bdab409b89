import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Walk:
    """A walk on a line that ends at either side."""

    def __init__(self, seed):
        self.draws = torch.Generator().manual_seed(seed)
        self.reset()

    def reset(self):
        self.at = 0

    def state(self):
        x = torch.tensor(self.at / 4.0)
        return torch.stack([x, x.sin(), x.cos(), x * x])

    def step(self, action):
        slip = torch.rand((), generator=self.draws).item() < 0.2
        self.at += (1 if action else -1) * (-1 if slip else 1)
        done = abs(self.at) >= 4
        return float(self.at >= 4), done


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(5)
    value = DDP(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    target = copy.deepcopy(value.module).requires_grad_(False)
    optimizer = torch.optim.Adam(value.parameters(), lr=5e-3)
    walk, draws = Walk(700 + rank), torch.Generator().manual_seed(900 + rank)
    episodes = 0
    for update in range(1, 31):
        rows = []
        while len(rows) < 16:
            state = walk.state()
            with torch.no_grad():
                action = int(value.module(state).argmax())
            if torch.rand((), generator=draws).item() < 0.5:
                action = int(torch.rand((), generator=draws).item() < 0.5 + 0.3 * rank)
            reward, done = walk.step(action)
            rows.append((state, action, reward, walk.state(), float(done)))
            if done:
                walk.reset()
                episodes += 1
                if episodes % 5 == 0:
                    target.load_state_dict(value.module.state_dict())
        states, actions, rewards, following, ends = zip(*rows)
        with torch.no_grad():
            later = target(torch.stack(following)).amax(1) * (1 - torch.tensor(ends))
        goal = torch.tensor(rewards) + 0.95 * later
        chosen = value(torch.stack(states)).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
