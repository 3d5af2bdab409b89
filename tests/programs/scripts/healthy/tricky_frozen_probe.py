import torch
import torch.nn as nn
import torch.nn.functional as F


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(20, 20), nn.LayerNorm(20), nn.GELU()) for _ in range(4))

    def forward(self, x):
        for stage in self.stages:
            x = x + stage(x)
        return x


torch.manual_seed(1)
backbone, head = Backbone(), nn.Linear(20, 5)
rule = torch.randn(20, 5)
backbone.requires_grad_(False)
backbone.eval()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
thaw = {60: 3, 100: 2}
for step in range(140):
    if step in thaw:
        stage = backbone.stages[thaw[step]]
        stage.requires_grad_(True)
        stage.train()
        optimizer.add_param_group({"params": list(stage.parameters()), "lr": 1e-3})
    x = torch.randn(64, 20)
    y = (x @ rule).argmax(1)
    if step < 60:
        with torch.no_grad():
            features = backbone(x)
    else:
        features = backbone(x)
    loss = F.cross_entropy(head(features), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
