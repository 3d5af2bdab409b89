import io

import torch
import torch.nn as nn
import torch.nn.functional as F


def build():
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, s / 10) * max(0.0, 1 - s / 160))
    return model, optimizer, scheduler, torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=40)


def run(parts, steps, rule):
    model, optimizer, scheduler, scaler = parts
    for step in range(steps):
        x = torch.randn(48, 16)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= before:
            scheduler.step()
        if step % 25 == 0:
            print(step, loss.item(), scaler.get_scale())


rule = torch.randn(16, 6)
parts = build()
run(parts, 70, rule)
file = io.BytesIO()
torch.save([p.state_dict() for p in parts], file)
file.seek(0)
parts = build()
for part, state in zip(parts, torch.load(file)):
    part.load_state_dict(state)
run(parts, 60, rule)
