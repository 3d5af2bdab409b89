import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

PARTS = 4


class Recurrent(nn.Module):
    def __init__(self, letters=12, width=20):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, text):
        return self.head(self.lstm(self.embed(text))[0])


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PARTS)
    torch.manual_seed(9)
    text = torch.randint(0, 12, (512, 10)).cumsum(1) % 12
    loader = DataLoader(TensorDataset(text), batch_size=4)
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    model, loader = accelerator.prepare(model, loader)
    optimizer.zero_grad()
    for number, (text,) in enumerate(loader, start=1):
        with accelerator.accumulate(model):
            logits = model(text[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            accelerator.backward(loss)
        if number % PARTS == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(f"rank {accelerator.process_index} loss {loss.item():.6f}", flush=True)
    accelerator.end_training()


main()
