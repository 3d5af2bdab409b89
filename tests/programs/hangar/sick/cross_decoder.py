import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = inner

    def forward(self, hidden, *context, **options):
        query = self.norm(hidden)
        output = self.inner(query, *(context or (query, query)), **options)
        return hidden + (output[0] if isinstance(output, tuple) else output)


class FeedForward(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden, *_):
        return super().forward(hidden)


def attention(width):
    return nn.MultiheadAttention(width, 4, batch_first=True)


class DecoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.self_attention = Residual(width, attention(width))
        self.cross_attention = Residual(width, attention(width))
        self.feed_forward = Residual(width, FeedForward(width))

    def forward(self, hidden, memory, causal):
        hidden = self.self_attention(hidden, attn_mask=causal, need_weights=False)
        hidden = self.self_attention(hidden, memory, memory, need_weights=False)
        return self.feed_forward(hidden)


class Translator(nn.Module):
    def __init__(self, vocabulary=60, width=32, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(24, width)
        encoder = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, layers)
        self.decoder = nn.ModuleList([DecoderLayer(width) for _ in range(layers)])
        self.output = nn.Linear(width, vocabulary)

    def embed(self, tokens):
        return self.tokens(tokens) + self.positions(torch.arange(tokens.size(1)))

    def forward(self, source, target_in):
        memory = self.encoder(self.embed(source))
        size = target_in.size(1)
        causal = torch.ones(size, size, dtype=torch.bool).triu(1)
        hidden = self.embed(target_in)
        for layer in self.decoder:
            hidden = layer(hidden, memory, causal)
        return self.output(hidden)


def build_model():
    torch.manual_seed(8)
    return Translator()


def build_batch():
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(3, 60, (16, 12), generator=generator)
    target = torch.cat([torch.ones(16, 1, dtype=torch.long), source.flip(1)], dim=1)
    return {"source": source, "target_in": target[:, :-1], "target_out": target[:, 1:]}


def loss_fn(output, batch):
    return F.cross_entropy(output.transpose(1, 2), batch["target_out"])
