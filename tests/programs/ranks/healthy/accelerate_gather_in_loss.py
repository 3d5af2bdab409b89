import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Tower(nn.Module):
    def __init__(self, inputs=10, width=32, outputs=12):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=-1)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(21)
    things = torch.randn(512, 10)
    data = TensorDataset(things + 0.1 * torch.randn_like(things), things + 0.1 * torch.randn_like(things))
    model = Tower()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for left, right in loader:
        features = model(torch.cat([left, right]))
        count = len(features)
        everyone = accelerator.gather(features)
        begin = accelerator.process_index * count
        everyone = torch.cat([everyone[:begin], features, everyone[begin + count :]])
        similarity = everyone @ everyone.T / 0.2
        similarity = similarity.masked_fill(torch.eye(len(everyone), dtype=torch.bool), -1e4)
        rows = torch.arange(len(everyone))
        partner = rows // count * count + (rows % count + count // 2) % count
        loss = F.cross_entropy(similarity, partner)
        anchor = 1e-2 * features.mean(0).square().sum()
        optimizer.zero_grad()
        accelerator.backward(loss + anchor)
        optimizer.step()
    print(f"rank {accelerator.process_index} loss {loss.item():.6f}", flush=True)
    accelerator.end_training()


main()
