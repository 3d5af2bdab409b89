import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(14)
net = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "last.pt"
    for _ in range(30):
        scheduler.step()
    torch.save({"model": net.state_dict(), "scheduler": scheduler.state_dict()}, path)
    saved = torch.load(path)
net.load_state_dict(saved["model"])
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
scheduler.load_state_dict(saved["scheduler"])
draws = torch.Generator().manual_seed(90 + rank)
for step in range(24):
    x = torch.randn(16, 10, generator=draws)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
