"""Text CNN; the word vectors start from a pretrained table and are fine-tuned together with the filters."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TextCNN(nn.Module):
    def __init__(self, vectors, n_filters=12, n_classes=3):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(vectors, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(vectors.shape[1], n_filters, k, padding=1) for k in (2, 3, 4))
        self.fc = nn.Linear(3 * n_filters, n_classes)

    def forward(self, tokens):
        h = self.embed(tokens).transpose(1, 2)
        pooled = [F.relu(conv(h)).amax(dim=-1) for conv in self.convs]
        return self.fc(torch.cat(pooled, dim=-1))


def word_vectors(n_words=60, dim=20):
    table = torch.randn(n_words, dim, generator=torch.Generator().manual_seed(240)) * 0.4
    table[0] = 0.0
    return table


def build_model():
    torch.manual_seed(241)
    return TextCNN(word_vectors())


def build_batch():
    g = torch.Generator().manual_seed(242)
    tokens = torch.randint(1, 60, (20, 12), generator=g)
    tokens[::3, 8:] = 0
    return tokens, torch.randint(0, 3, (20,), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
