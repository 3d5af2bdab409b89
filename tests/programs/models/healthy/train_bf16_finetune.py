"""Fine-tunes a small transformer encoder with a low learning rate; the forward pass runs in bfloat16."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, vocab=50, dim=32, n_classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(dim=1))


def main(steps=80):
    torch.set_num_threads(1)
    torch.manual_seed(450)
    tokens = torch.randint(0, 50, (256, 8))
    labels = (tokens[:, 0] % 4)
    model = Encoder().to(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
    for step in range(steps):
        rows = torch.randint(0, 256, (32,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(tokens[rows])
        loss = F.cross_entropy(logits.float(), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
