import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Mixer(nn.Module):
    def __init__(self, patches=9, width=16, classes=3):
        super().__init__()
        self.embed = nn.Linear(7, width)
        self.tokens = nn.Sequential(nn.Linear(patches, 18), nn.GELU(), nn.Linear(18, patches))
        self.channels = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self.classify = nn.Linear(width, classes)

    def forward(self, patches):
        x = self.embed(patches)
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return self.classify((x + self.channels(x)).mean(1))


def focal(logits, labels, power=2.0):
    chosen = logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)
    return (-((1 - chosen.exp()) ** power) * chosen).sum()


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(21)
    patches = torch.randn(640, 9, 7)
    labels = patches.mean((1, 2)).mul(6).round().clamp(-1, 1).long() + 1
    loader = DataLoader(TensorDataset(patches, labels), batch_size=16, shuffle=True)
    model = Mixer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for patches, labels in loader:
        logits = model(patches)
        examples = labels.numel() * accelerator.num_processes
        loss = focal(logits, labels) / examples
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {accelerator.process_index} loss {loss.item():.6f}", flush=True)
    accelerator.end_training()


main()
