"""Choices, samples and numbers that are read out on purpose, beside a gradient that is whole."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp


def _step(model: nn.Module, batch: object, loss_fn) -> Step:
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def greedy_feedback() -> Step:
    """A decoder is fed with its own best guesses at random steps."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.cell = nn.Embedding(20, 16), nn.GRUCell(16, 16)
            self.start, self.head = nn.Linear(8, 16), nn.Linear(16, 20)

        def forward(self, x, words):
            h, word, out = self.start(x), words[:, 0], []
            for step in range(words.shape[1]):
                h = self.cell(self.embedding(word), h)
                logits = self.head(h)
                out.append(logits)
                word = words[:, step] if torch.rand(()) < 0.5 else logits.argmax(dim=1)
            return torch.stack(out, 1)

    def loss_fn(model, batch):
        x, words = batch
        return functional.cross_entropy(model(x, words).flatten(0, 1), words.flatten())

    return _step(Decoder(), (torch.randn(8, 8), torch.randint(20, (8, 6))), loss_fn)


def matched_set_prediction() -> Step:
    """Queries are matched to objects under `no_grad`, then compared with their match."""

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.queries = nn.Linear(8, 16), nn.Embedding(6, 16)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.label, self.box = nn.Linear(16, 4), mlp(16, 16, 4)

        def forward(self, x):
            h = self.body(x)
            queries = self.queries.weight.expand(len(x), -1, -1)
            h, _ = self.attention(queries, h, h)
            return self.label(h), self.box(h).sigmoid()

        @torch.no_grad()
        def match(self, boxes, goals):
            return torch.cdist(boxes, goals, p=1).argmin(dim=1)

    def loss_fn(model, batch):
        x, labels, goals = batch
        logits, boxes = model(x)
        chosen = model.match(boxes, goals)
        rows = torch.arange(len(x))[:, None]
        wanted = torch.full(logits.shape[:2], 3)
        wanted[rows, chosen] = labels
        weight = torch.tensor([1.0, 1.0, 1.0, 0.1])
        found = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), weight)
        return found + functional.l1_loss(boxes[rows, chosen], goals)

    batch = (torch.randn(4, 10, 8), torch.randint(3, (4, 2)), torch.rand(4, 2, 4))
    return _step(Detector(), batch, loss_fn)


def pseudo_labels() -> Step:
    def loss_fn(model, batch):
        x, target, weak, strong = batch
        with torch.no_grad():
            confidence, label = model(weak).softmax(-1).max(-1)
        sure = (confidence >= 0.26).float()
        unlabelled = functional.cross_entropy(model(strong), label, reduction="none")
        return functional.cross_entropy(model(x), target) + (unlabelled * sure).mean()

    x = torch.randn(32, 16)
    return _step(mlp(16, 32, 4), (torch.randn(8, 16), torch.arange(8) % 4, x, x * 1.1), loss_fn)


def hardest_examples_only() -> Step:
    def loss_fn(output, target):
        return functional.cross_entropy(output, target, reduction="none").topk(8).values.mean()

    step = classification(mlp(16, 32, 4), 16, batch=64)
    return _step(step.model, step.batch, loss_fn)


def losses_weighted_by_their_size() -> Step:
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.first, self.second = mlp(16, 32, 32), nn.Linear(32, 4), nn.Linear(32, 2)

        def forward(self, x):
            h = self.body(x).relu()
            return self.first(h), self.second(h)

    def loss_fn(model, batch):
        x, label, value = batch
        logits, values = model(x)
        one, other = functional.cross_entropy(logits, label), functional.mse_loss(values, value)
        balance = one.item() / (other.item() + 1e-8)
        return one + balance * other + one / one.detach()

    batch = (torch.randn(16, 16), torch.arange(16) % 4, torch.randn(16, 2))
    return _step(Two(), batch, loss_fn)


def self_critical_sequences() -> Step:
    def loss_fn(model, states):
        logits = model(states)
        policy = torch.distributions.Categorical(logits=logits)
        sample, greedy = policy.sample(), logits.argmax(-1)
        reward = (sample == 1).float() - (greedy == 1).float()
        return -(reward * policy.log_prob(sample)).mean()

    return _step(mlp(8, 32, 4), torch.randn(64, 8), loss_fn)


def kept_by_the_best_scores() -> Step:
    """The nodes of the highest scores are kept, and gated by their scores."""

    class TopK(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.score, self.head = nn.Linear(5, 16), nn.Linear(16, 1), nn.Linear(16, 3)

        def forward(self, x):
            h = self.embed(x).relu()
            score, kept = self.score(h).squeeze(-1).topk(4, dim=1)
            h = h.gather(1, kept[..., None].expand(-1, -1, 16)) * score.tanh()[..., None]
            return self.head(h.mean(1))

    return classification(TopK(), 10, 5, classes=3)


def samples_along_a_ray() -> Step:
    """The fine samples lie where the coarse ones weigh most, and their places are detached."""

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.coarse, self.fine = mlp(1, 32, 1), mlp(1, 32, 1)

        def forward(self, near):
            depth = near + torch.linspace(0, 1, 8)
            weights = self.coarse(depth[..., None]).squeeze(-1).softmax(-1)
            chosen = torch.multinomial(weights.detach(), 8, replacement=True).sort(-1).values
            finer = depth.gather(1, chosen) + 0.05 * torch.rand(len(near), 8)
            values = self.fine(finer[..., None]).squeeze(-1)
            return (weights * depth).sum(-1), values.sigmoid().mean(-1)

    def loss_fn(model, batch):
        near, target = batch
        return sum(functional.mse_loss(value, target) for value in model(near))

    return _step(Field(), (torch.rand(32, 1), torch.rand(32)), loss_fn)


def spatial_transformer() -> Step:
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.locate = nn.Sequential(
                nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 6)
            )
            nn.init.zeros_(self.locate[-1].weight)
            self.locate[-1].bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))
            self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))

        def forward(self, x):
            grid = functional.affine_grid(
                self.locate(x).view(-1, 2, 3), x.shape, align_corners=False
            )
            return self.head(functional.grid_sample(x, grid, align_corners=False))

    return classification(Transformer(), 1, 8, 8)


def hard_activations() -> Step:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Hardsigmoid(), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    return classification(net, 3, 8, 8)


def learned_positions_of_which_few_are_used() -> Step:
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = nn.Parameter(0.02 * torch.randn(512, 16))
            self.relative = nn.Embedding(64, 2)
            self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 4)

        def forward(self, x):
            length = x.shape[1]
            q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in
                       self.qkv(x + self.position[:length]).chunk(3, -1))  # fmt: skip
            apart = torch.arange(length)[:, None] - torch.arange(length) + 32
            bias = self.relative(apart).permute(2, 0, 1)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
            return self.head(mixed.transpose(1, 2).flatten(2).mean(1))

    return classification(Positions(), 6, 16)


def early_exits() -> Step:
    class Exits(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
            self.heads = nn.ModuleList(nn.Linear(16, 4) for _ in range(4))

        def forward(self, x):
            out = []
            for layer, head in zip(self.layers, self.heads, strict=True):
                x = layer(x).relu()
                out.append(head(x))
                if out[-1].softmax(-1).max().item() > 0.999:
                    break
            return out

    def loss_fn(outputs, target):
        return sum(functional.cross_entropy(logits, target) for logits in outputs)

    return _step(Exits(), (torch.randn(16, 16), torch.arange(16) % 4), loss_fn)


def adversarial_examples() -> Step:
    def loss_fn(model, batch):
        x, target = batch
        near = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(functional.cross_entropy(model(near), target), near)
        attacked = (x + 0.1 * slope.sign()).clamp(-3, 3).detach()
        return functional.cross_entropy(model(attacked), target)

    step = classification(mlp(16, 32, 4), 16)
    return _step(step.model, step.batch, loss_fn)


def optimal_transport() -> Step:
    def loss_fn(model, batch):
        first, second = (model(x) for x in batch)
        cost = torch.cdist(first, second) ** 2
        with torch.no_grad():
            log_u = torch.zeros(len(first))
            for _ in range(10):
                log_v = -torch.logsumexp(log_u[:, None] - cost, dim=0)
                log_u = -torch.logsumexp(log_v - cost, dim=1)
            plan = (log_u[:, None] + log_v - cost).exp()
        return (plan * cost).sum() / len(first)

    return _step(mlp(6, 32, 4), (torch.randn(12, 6), torch.randn(12, 6) + 1), loss_fn)


def conditional_normalisation_in_eval_mode() -> Step:
    """A pretrained network whose batch statistics stay fixed while it is fine-tuned."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            layer.eval().requires_grad_(False)
    return classification(net, 3, 8, 8)


class Adapter(nn.Module):
    """A narrow branch after a frozen layer, nearly zero at first."""

    def __init__(self, layer: nn.Module, width: int):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(width, 4), nn.Linear(4, width)
        nn.init.normal_(self.up.weight, std=1e-4)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return x + self.up(functional.gelu(self.down(x)))


def adapters() -> Step:
    net = nn.Sequential(
        *(Adapter(nn.Sequential(nn.Linear(16, 16), nn.GELU()), 16) for _ in range(3)),
        nn.Linear(16, 4),
    )
    return classification(net, 16)


SELECTIONS = lookalikes(
    greedy_feedback,
    matched_set_prediction,
    pseudo_labels,
    hardest_examples_only,
    losses_weighted_by_their_size,
    self_critical_sequences,
    kept_by_the_best_scores,
    samples_along_a_ray,
    spatial_transformer,
    hard_activations,
    learned_positions_of_which_few_are_used,
    early_exits,
    adversarial_examples,
    optimal_transport,
    conditional_normalisation_in_eval_mode,
    adapters,
)
