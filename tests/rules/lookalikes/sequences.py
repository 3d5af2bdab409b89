"""Sequences: embeddings with idle rows, masks, attention, recurrence."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp


def word_vectors() -> Step:
    class SkipGram(nn.Module):
        def __init__(self):
            super().__init__()
            self.centre = nn.Embedding(50_000, 16)
            self.context = nn.Embedding(50_000, 16)
            nn.init.uniform_(self.centre.weight, -0.5 / 16, 0.5 / 16)
            nn.init.zeros_(self.context.weight)

        def forward(self, words, others):
            return (self.centre(words)[:, None] * self.context(others)).sum(-1)

    model = SkipGram()
    words = torch.randint(50_000, (64,))
    others = torch.randint(50_000, (64, 6))
    target = torch.zeros(64, 6)
    target[:, 0] = 1

    def loss_fn(model, batch):
        words, others, target = batch
        return functional.binary_cross_entropy_with_logits(model(words, others), target)

    return Step(model=model, batch=(words, others, target), loss_fn=loss_fn, optimizer=adam(model))


def bag_of_words_with_padding() -> Step:
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(1000, 16, padding_idx=0)
            self.head = nn.Linear(16, 4)

        def forward(self, ids):
            mask = (ids != 0).unsqueeze(-1)
            return self.head((self.embedding(ids) * mask).sum(1) / mask.sum(1).clamp(min=1))

    ids = torch.randint(1, 1000, (16, 10))
    ids[:, 6:] = 0
    model = Bag()
    return Step(
        model=model,
        batch=(ids, torch.arange(16) % 4),
        loss_fn=functional.cross_entropy,
        optimizer=adam(model),
    )


class Attention(nn.Module):
    """Attention as it is written by hand, with biases and a causal mask of -inf."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        causal = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        scores = scores.masked_fill(causal, float("-inf"))
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None], float("-inf"))
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class LanguageModel(nn.Module):
    """A small GPT, its head tied to its embedding."""

    def __init__(self, *, tied: bool = True, how: str | None = None, depth: int = 2):
        super().__init__()
        self.how = how
        self.embedding = nn.Embedding(100, 32)
        self.position = nn.Embedding(64, 32)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2 * depth))
        self.attentions = nn.ModuleList(Attention(32, 4) for _ in range(depth))
        self.mlps = nn.ModuleList(mlp(32, 64, 32, activation=nn.GELU) for _ in range(depth))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 100, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def block(self, number: int, x: Tensor, padding: Tensor) -> Tensor:
        x = x + self.attentions[number](self.norms[2 * number](x), padding)
        return x + self.mlps[number](self.norms[2 * number + 1](x))

    def forward(self, ids: Tensor) -> Tensor:
        padding = ids == 0
        x = self.embedding(ids) + self.position(torch.arange(ids.shape[1]))
        for number in range(len(self.mlps)):
            if self.how is None:
                x = self.block(number, x, padding)
            else:
                reentrant = self.how == "reentrant"
                x = checkpoint(self.block, number, x, padding, use_reentrant=reentrant)
        return self.head(self.norm(x))


def _language(model: nn.Module) -> Step:
    ids = torch.randint(1, 100, (4, 12))
    ids[1:, 8:] = 0

    def loss_fn(logits: Tensor, ids: Tensor) -> Tensor:
        goals = ids[:, 1:].masked_fill(ids[:, 1:] == 0, -100)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), goals.flatten())

    return Step(model=model, batch=(ids, ids), loss_fn=loss_fn, optimizer=adam(model, 3e-4))


def tied_language_model() -> Step:
    return _language(LanguageModel())


def untied_language_model() -> Step:
    return _language(LanguageModel(tied=False))


def checkpointed_language_model() -> Step:
    return _language(LanguageModel(how="non-reentrant"))


def reentrant_checkpoints() -> Step:
    return _language(LanguageModel(how="reentrant"))


def masked_language_model() -> Step:
    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(100, 32, padding_idx=0)
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(32, 100)

        def forward(self, ids):
            return self.head(self.encoder(self.embedding(ids), src_key_padding_mask=ids == 0))

    ids = torch.randint(1, 100, (4, 16))
    labels = torch.full_like(ids, -100)
    labels[0, 3], labels[2, 7] = ids[0, 3], ids[2, 7]
    ids[3, 10:] = 0
    model = Bert()

    def loss_fn(logits, labels):
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)

    return Step(model=model, batch=(ids, labels), loss_fn=loss_fn, optimizer=adam(model))


def translation() -> Step:
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(60, 32)
            self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
            self.head = nn.Linear(32, 60)

        def forward(self, source, goal):
            mask = nn.Transformer.generate_square_subsequent_mask(goal.shape[1])
            out = self.transformer(self.embedding(source), self.embedding(goal), tgt_mask=mask)
            return self.head(out)

    def loss_fn(model, batch):
        source, goal = batch
        logits = model(source, goal[:, :-1])
        return functional.cross_entropy(logits.transpose(1, 2), goal[:, 1:], label_smoothing=0.1)

    model = Translator()
    batch = (torch.randint(60, (4, 9)), torch.randint(60, (4, 7)))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


class Recurrent(nn.Module):
    """A classifier of sequences."""

    def __init__(self, kind: type[nn.RNNBase], pool: str = "mean", **options: object):
        super().__init__()
        self.rnn = kind(8, 24, batch_first=True, **options)
        self.head = nn.Linear(48 if options.get("bidirectional") else 24, 4)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x)
        return self.head(out.mean(1) if self.pool == "mean" else out[:, -1])


def lstm_of_64_steps() -> Step:
    return classification(Recurrent(nn.LSTM), 64, 8)


def gru_of_8_steps_read_at_the_end() -> Step:
    return classification(Recurrent(nn.GRU, "last"), 8, 8)


def rnn_of_8_steps() -> Step:
    return classification(Recurrent(nn.RNN), 8, 8)


def bidirectional_lstm() -> Step:
    return classification(Recurrent(nn.LSTM, bidirectional=True, num_layers=2, dropout=0.3), 20, 8)


def tagger_with_packed_sequences() -> Step:
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 16, padding_idx=0)
            self.lstm = nn.LSTM(16, 16, batch_first=True, bidirectional=True)
            self.head = nn.Linear(32, 4)

        def forward(self, ids, lengths):
            packed = pack_padded_sequence(
                self.embedding(ids), lengths, batch_first=True, enforce_sorted=False
            )
            _, (hidden, _) = self.lstm(packed)
            return self.head(torch.cat([hidden[0], hidden[1]], dim=1))

    lengths = torch.tensor([9, 4, 7, 2])
    ids = torch.randint(1, 50, (4, 9)) * (torch.arange(9) < lengths[:, None])
    model = Tagger()

    def loss_fn(model, batch):
        ids, lengths, goal = batch
        return functional.cross_entropy(model(ids, lengths), goal)

    return Step(
        model=model, batch=(ids, lengths, torch.arange(4)), loss_fn=loss_fn, optimizer=adam(model)
    )


def unrolled_gru_cell() -> Step:
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 24), nn.Linear(24, 4)

        def forward(self, x):
            h, states = torch.zeros(len(x), 24), []
            for step in range(x.shape[1]):
                h = self.cell(x[:, step], h)
                states.append(h)
            return self.head(torch.stack(states, 1).mean(1))

    return classification(Unrolled(), 32, 8)


def truncated_back_propagation() -> Step:
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)
            self.state = None

        def forward(self, x):
            if self.state is not None:
                self.state = tuple(s.detach() for s in self.state)
            out, self.state = self.lstm(x, self.state)
            return self.head(out.mean(1))

    return classification(Stateful(), 12, 8)


def character_model_of_all_steps() -> Step:
    class Characters(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(40, 16), nn.LSTM(16, 32, batch_first=True)
            self.head = nn.Linear(32, 40)

        def forward(self, ids):
            return self.head(self.lstm(self.embedding(ids))[0])

    ids = torch.randint(40, (4, 33))
    model = Characters()
    return Step(
        model=model,
        batch=(ids[:, :-1], ids[:, 1:]),
        loss_fn=lambda logits, goal: functional.cross_entropy(logits.flatten(0, 1), goal.flatten()),
        optimizer=adam(model),
    )


def connectionist_temporal_classification() -> Step:
    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = nn.GRU(8, 16, bidirectional=True), nn.Linear(32, 12)

        def forward(self, x):
            return self.head(self.gru(x)[0]).log_softmax(-1)

    def loss_fn(model, batch):
        x, goals, lengths = batch
        return functional.ctc_loss(model(x), goals, torch.full((4,), 20), lengths)

    model = Speech()
    batch = (torch.randn(20, 4, 8), torch.randint(1, 12, (4, 6)), torch.tensor([6, 4, 5, 3]))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def temporal_convolutions() -> Step:
    class Tcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(
                nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 2, dilation=2**i))
                for i in range(4)
            )
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            for number, conv in enumerate(self.convs):
                x = functional.relu(
                    x + functional.dropout(conv(functional.pad(x, (2**number, 0))).relu(), 0.2)
                )
            return self.head(x[..., -1])

    return classification(Tcn(), 8, 16)


def state_space_loop() -> Step:
    class StateSpace(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_decay = nn.Parameter(torch.linspace(-4, -0.5, 16))
            self.inputs, self.outputs = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            decay, h, out = torch.exp(-self.log_decay.exp()), 0.0, []
            for step in self.inputs(x).unbind(1):
                h = decay * h + (1 - decay) * step
                out.append(h)
            return self.outputs(torch.stack(out, 1).mean(1))

    return classification(StateSpace(), 24, 8)


SEQUENCES = lookalikes(
    word_vectors,
    bag_of_words_with_padding,
    tied_language_model,
    untied_language_model,
    checkpointed_language_model,
    reentrant_checkpoints,
    masked_language_model,
    translation,
    lstm_of_64_steps,
    gru_of_8_steps_read_at_the_end,
    rnn_of_8_steps,
    bidirectional_lstm,
    tagger_with_packed_sequences,
    unrolled_gru_cell,
    truncated_back_propagation,
    character_model_of_all_steps,
    connectionist_temporal_classification,
    temporal_convolutions,
    state_space_loop,
)
