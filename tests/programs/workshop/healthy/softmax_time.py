import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, vocab=40, tags=6, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, d, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * d, tags)

    def forward(self, words):
        h, _ = self.lstm(self.emb(words))
        return F.log_softmax(self.fc(h), dim=-1)


def build_model():
    torch.manual_seed(0)
    return Tagger()


def build_batch():
    torch.manual_seed(1)
    words = torch.randint(0, 40, (12, 11))
    return words, words % 6


def loss_fn(output, batch):
    return F.nll_loss(output.reshape(-1, output.size(-1)), batch[1].reshape(-1))
