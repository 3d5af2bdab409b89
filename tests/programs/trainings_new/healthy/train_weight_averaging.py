import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(70)
x = torch.randn(200, 6)
loader = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), 25, shuffle=True)
model = nn.Sequential(nn.Linear(6, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
average, swa = AveragedModel(model), SWALR(optimizer, swa_lr=0.03, anneal_epochs=3)
for epoch in range(14):
    for a, b in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
    if epoch >= 8:
        average.update_parameters(model)
        swa.step()
    print(epoch, loss.item())
update_bn((a for a, _ in loader), average)
