"""Healthy loops of one model, of which no single backward shows the whole."""

import torch
from torch import nn
from torch.nn import functional

STEPS = 8


def classify(model: nn.Module, optimizer, steps: int = STEPS, each=lambda step: None):
    """Train on which of two halves the first feature lies in."""
    for step in range(steps):
        each(step)
        features = torch.randn(32, 8)
        optimizer.zero_grad()
        functional.cross_entropy(model(features), (features[:, 0] > 0).long()).backward()
        optimizer.step()


class Experts(nn.Module):
    """Sends every row to one expert of many, most of which are idle in a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 6)
        self.experts = nn.ModuleList(nn.Linear(8, 2) for _ in range(6))

    def forward(self, rows):
        weight, chosen = self.gate(rows[:4]).softmax(1).max(1)
        parts = [self.experts[expert](row) for expert, row in zip(chosen, rows, strict=False)]
        few = torch.stack(parts) * weight[:, None]
        return torch.cat([few, few.new_zeros(len(rows) - 4, 2)])


class Dropping(nn.Module):
    """Leaves half of its layers out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 2)

    def forward(self, rows):
        for layer in self.layers:
            if torch.rand(()) > 0.5:
                rows = rows + torch.relu(layer(rows))
        return self.head(rows)


class LowRank(nn.Module):
    """A frozen layer with an update of low rank that starts at zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, inputs) * 0.1)
        self.up = nn.Parameter(torch.zeros(outputs, 2))

    def forward(self, rows):
        return self.base(rows) + rows @ self.down.T @ self.up.T


def idle_experts():
    model = Experts()
    classify(model, torch.optim.AdamW(model.parameters(), lr=1e-3), steps=16)


def dropped_layers():
    model = Dropping()
    classify(model, torch.optim.AdamW(model.parameters(), lr=1e-3), steps=12)


def an_update_of_low_rank_behind_a_warm_up():
    model = nn.Sequential(LowRank(8, 16), nn.ReLU(), LowRank(16, 2))
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 8))

    def each(step: int):
        if step:
            schedule.step()

    classify(model, optimizer, steps=3, each=each)


def a_backbone_that_is_thawed():
    backbone, head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 2)
    model = nn.Sequential(backbone, head)
    backbone.requires_grad_(False)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)

    def each(step: int):
        if step == STEPS // 2:
            backbone.requires_grad_(True)
            optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 1e-4})

    classify(model, optimizer, each=each)


def a_head_that_is_thawed():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    model[2].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def each(step: int):
        model[2].requires_grad_(step >= STEPS // 2)

    classify(model, optimizer, each=each)


def a_probe_on_features():
    backbone, head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 2)
    classify(nn.Sequential(backbone, head), torch.optim.SGD(head.parameters(), lr=0.1))


def steps_left_out_for_a_broken_batch():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        features = torch.randn(32, 8)
        if step in (1, 2):
            features[0, 0] = float("nan")
        optimizer.zero_grad()
        model(features).pow(2).mean().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()


def a_scaler_that_looks_for_its_scale():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    for _ in range(24):
        features = torch.randn(32, 8)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = functional.cross_entropy(model(features), (features[:, 0] > 0).long())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def errors_that_are_caught():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        output = model(torch.randn(32, 8)).pow(2)
        optimizer.zero_grad()
        try:
            (output if step == 1 else output.mean()).backward()
        except RuntimeError:
            continue
        optimizer.step()


def steps_of_lbfgs():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6)
    features = torch.randn(32, 3)

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(features), features.sum(1, keepdim=True).sin())
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)


def weights_that_the_script_moves():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    for _ in range(STEPS):
        model.zero_grad()
        model(torch.randn(32, 8)).pow(2).mean().backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.01 * weight.grad


def a_loss_that_comes_to_zero():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(520):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()


SINGLE = (
    idle_experts,
    dropped_layers,
    an_update_of_low_rank_behind_a_warm_up,
    a_backbone_that_is_thawed,
    a_head_that_is_thawed,
    a_probe_on_features,
    steps_left_out_for_a_broken_batch,
    a_scaler_that_looks_for_its_scale,
    errors_that_are_caught,
    steps_of_lbfgs,
    weights_that_the_script_moves,
    a_loss_that_comes_to_zero,
)
