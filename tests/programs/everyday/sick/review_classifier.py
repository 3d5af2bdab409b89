import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, vocab=60, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.pool_fc = nn.Linear(dim, dim)

    def forward(self, ids):
        h = self.layers(self.embed(ids))
        return torch.tanh(self.pool_fc(h.mean(1)))


class ReviewClassifier(nn.Module):
    def __init__(self, encoder, classes):
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(32, classes)

    def forward(self, ids):
        return self.classifier(self.encoder(ids))


def freeze_backbone(model):
    for name, param in model.named_parameters():
        if "fc" not in name:
            param.requires_grad = False


def reviews(n, vocab=60, length=12):
    ids = torch.randint(vocab, (n, length))
    score = (ids < vocab // 2).float().mean(1)
    return ids, (score > 0.5).long()


def main():
    torch.manual_seed(13)
    encoder = Encoder()
    encoder.load_state_dict({k: v.clone() for k, v in encoder.state_dict().items()})
    model = ReviewClassifier(encoder, classes=2)
    freeze_backbone(model)
    optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)
    for step in range(80):
        ids, labels = reviews(64)
        loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
