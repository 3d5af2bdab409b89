import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertModel


class SentencePairs(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=32, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, ids):
        hidden = self.bert(input_ids=ids, attention_mask=(ids > 0).long()).last_hidden_state
        return self.head(hidden[:, 0])

    def freeze(self):
        for parameter in self.bert.parameters():
            parameter.requires_grad = False

    def unfreeze(self):
        for parameter in self.bert.parameters():
            parameter.requires_grad = True


def dataset(n=384):
    generator = torch.Generator().manual_seed(10)
    labels = torch.randint(0, 2, (n,), generator=generator)
    ids = torch.randint(4, 44, (n, 12), generator=generator) + 20 * labels[:, None]
    ids[:, 0] = 2
    lengths = torch.randint(8, 13, (n, 1), generator=generator)
    ids[torch.arange(12)[None] >= lengths] = 0
    return TensorDataset(ids, labels)


def epoch_of(model, loader, optimizer):
    total = 0.0
    for ids, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(21)
    loader = DataLoader(dataset(), batch_size=32, shuffle=True)
    model = SentencePairs()
    model.freeze()
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=3e-3,
    )
    for epoch in range(5):
        if epoch == 2:
            model.unfreeze()
        print(f"epoch {epoch}: {epoch_of(model, loader, optimizer):.4f}")


if __name__ == "__main__":
    main()
