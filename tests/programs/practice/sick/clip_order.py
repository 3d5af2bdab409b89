import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitModule(nn.Module):
    def training_step(self, batch):
        raise NotImplementedError

    def configure_optimizers(self):
        raise NotImplementedError

    def on_train_epoch_end(self, epoch, loss):
        print(f"epoch {epoch}: {loss:.4f}")


class SequenceTagger(LitModule):
    def __init__(self, vocab=20, width=24, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, tags)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])

    def training_step(self, batch):
        tokens, tags = batch
        return F.cross_entropy(self(tokens).flatten(0, 1), tags.flatten(), reduction="sum") / len(tokens)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.3)


class Trainer:
    def __init__(self, max_epochs, gradient_clip_val=None):
        self.max_epochs = max_epochs
        self.gradient_clip_val = gradient_clip_val

    def clip(self, module):
        if self.gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(module.parameters(), self.gradient_clip_val)

    def fit(self, module, loader):
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            module.train()
            for batch in loader:
                optimizer.zero_grad(set_to_none=False)
                loss = module.training_step(batch)
                self.clip(module)
                loss.backward()
                optimizer.step()
            module.on_train_epoch_end(epoch, loss.item())


def main():
    torch.manual_seed(80)
    tokens = torch.randint(0, 20, (256, 10))
    tags = (tokens + tokens.roll(1, dims=1)) % 4
    loader = DataLoader(TensorDataset(tokens, tags), batch_size=32, shuffle=True)
    Trainer(max_epochs=5, gradient_clip_val=2.0).fit(SequenceTagger(), loader)


if __name__ == "__main__":
    main()
