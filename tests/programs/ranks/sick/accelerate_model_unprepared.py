import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
set_seed(6)
x = torch.randn(512, 14)
y = (x @ torch.randn(14, 4)).argmax(1)
loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
model = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
optimizer, loader = accelerator.prepare(optimizer, loader)
for epoch in range(2):
    model.train()
    for inputs, labels in loader:
        loss = cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
print(f"rank {accelerator.process_index} loss {loss.item():.5f}", flush=True)
accelerator.end_training()
