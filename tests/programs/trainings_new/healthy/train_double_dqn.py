import random
import torch
from torch import nn

random.seed(3)
torch.manual_seed(62)


def build():
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))


eye = torch.eye(6)
q, q_target = build(), build()
q_target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=5e-3)
transitions = []
for _ in range(400):
    s, a = random.randrange(5), random.randrange(2)
    n = max(0, min(5, s + 2 * a - 1))
    transitions.append((s, a, n, float(n == 5)))
for step in range(160):
    s, a, n, r = map(torch.tensor, zip(*random.sample(transitions, 48)))
    values = q(eye[s])[torch.arange(48), a]
    with torch.no_grad():
        best = q(eye[n]).argmax(1)
        goal = r + 0.9 * (1 - r) * q_target(eye[n])[torch.arange(48), best]
    loss = nn.functional.smooth_l1_loss(values, goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(q.parameters(), 10.0)
    optimizer.step()
    if step % 20 == 0:
        q_target.load_state_dict(q.state_dict())
    if step % 40 == 39:
        print(step, loss.item(), q(eye[0])[1].item())
