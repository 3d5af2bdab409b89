import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
amp_dtype = torch.float16 if device == "cuda" else torch.bfloat16


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.body(x)


model = nn.Sequential(nn.Linear(20, 48), ResBlock(48), ResBlock(48), nn.Linear(48, 5)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler(device, init_scale=2.0**14)
criterion = nn.CrossEntropyLoss()
projection = torch.randn(20, 5, device=device)

for step in range(60):
    x = torch.randn(64, 20, device=device)
    y = (x @ projection).argmax(1)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=amp_dtype):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 0:
        print(step, loss.item(), scaler.get_scale())
