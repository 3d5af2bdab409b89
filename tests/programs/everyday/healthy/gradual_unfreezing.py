import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.mid = nn.Linear(32, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(F.relu(self.mid(F.relu(self.embed(x)))))


model = Classifier()
state = {k: v.clone() for k, v in model.state_dict().items()}
model.load_state_dict(state)
for p in model.parameters():
    p.requires_grad_(False)
for p in model.head.parameters():
    p.requires_grad_(True)
optimizer = torch.optim.AdamW(model.head.parameters(), lr=5e-3)
waiting = [("mid", 2e-3), ("embed", 1e-3)]
truth = torch.randn(16, 4)

for epoch in range(6):
    if epoch and epoch % 2 == 0 and waiting:
        name, lr = waiting.pop(0)
        layer = getattr(model, name)
        layer.requires_grad_(True)
        optimizer.add_param_group({"params": layer.parameters(), "lr": lr})
    for _ in range(15):
        x = torch.randn(48, 16)
        loss = F.cross_entropy(model(x), (x @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} groups {len(optimizer.param_groups)} loss {loss.item():.3f}")
