import torch
import torch.nn as nn
import torch.nn.functional as F


class Callback:
    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class GradientHygiene(Callback):
    def on_batch_start(self, trainer, index):
        if index % trainer.accumulate == 0:
            trainer.optimizer.zero_grad(set_to_none=True)


class Progress(Callback):
    def __init__(self, every):
        self.every, self.losses = every, []

    def on_batch_end(self, trainer, index, loss):
        self.losses.append(loss)
        if len(self.losses) == self.every:
            print(index + 1, sum(self.losses) / self.every)
            self.losses.clear()


class Trainer:
    def __init__(self, model, optimizer, accumulate, callbacks):
        self.model, self.optimizer = model, optimizer
        self.accumulate, self.callbacks = accumulate, callbacks

    def call(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def fit(self, loader):
        for index, (frames, lengths, labels, label_lengths) in enumerate(loader):
            self.call("on_batch_start", index)
            loss = self.model.loss(frames, lengths, labels, label_lengths)
            (loss / self.accumulate).backward()
            if (index + 1) % self.accumulate == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
                self.optimizer.step()
            self.call("on_batch_end", index, loss.item())


class Recognizer(nn.Module):
    def __init__(self, bands=12, width=32, symbols=9):
        super().__init__()
        self.subsample = nn.Conv1d(bands, width, 3, stride=2, padding=1)
        self.rnn = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, symbols)

    def loss(self, frames, lengths, labels, label_lengths):
        hidden = F.relu(self.subsample(frames.transpose(1, 2))).transpose(1, 2)
        log_probs = self.head(self.rnn(hidden)[0]).log_softmax(-1)
        return F.ctc_loss(log_probs.transpose(0, 1), labels, (lengths + 1) // 2, label_lengths)


def utterances(count, seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randn(9, 12, generator=generator)
    for _ in range(count):
        labels = torch.randint(1, 9, (6, 5), generator=generator)
        frames = codes[labels].repeat_interleave(6, dim=1)
        frames = frames + 0.3 * torch.randn(frames.shape, generator=generator)
        yield frames, torch.full((6,), 30), labels, torch.full((6,), 5)


if __name__ == "__main__":
    torch.manual_seed(0)
    network = Recognizer()
    adam = torch.optim.Adam(network.parameters(), lr=4e-3)
    Trainer(network, adam, 4, [GradientHygiene(), Progress(20)]).fit(utterances(100, 1))
