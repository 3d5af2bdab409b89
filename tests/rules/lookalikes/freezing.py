"""Parameters that are meant to get no gradient, and gradients that are stopped on purpose."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp


class LoraLinear(nn.Module):
    """A frozen layer with a low-rank branch whose second factor begins at zero."""

    def __init__(self, base: nn.Linear, rank: int = 4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


def lora() -> Step:
    net = mlp(16, 32, 32, 4, activation=nn.GELU)
    for index in (0, 2):
        net[index] = LoraLinear(net[index])
    net[4].requires_grad_(False)
    return classification(net, 16)


def lora_modules_to_save() -> Step:
    net = mlp(16, 32, 32, 4).requires_grad_(False)
    net[2] = LoraLinear(net[2])
    net[4].requires_grad_(True)
    return classification(net, 16)


class FrozenBackbone(nn.Module):
    """A classifier on a backbone that is frozen in one of three ways."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(32, 4)
        if how != "detach":
            self.backbone.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "no_grad":
            with torch.no_grad():
                features = self.backbone(x)
        else:
            features = self.backbone(x)
        return self.head(features.detach() if self.how == "detach" else features)


def frozen_backbone() -> Step:
    return classification(FrozenBackbone("requires_grad"), 3, 8, 8)


def backbone_under_no_grad() -> Step:
    return classification(FrozenBackbone("no_grad"), 3, 8, 8)


def frozen_backbone_in_eval_mode() -> Step:
    model = FrozenBackbone("requires_grad")
    model.backbone.eval()
    return classification(model, 3, 8, 8)


def only_the_head_in_the_optimizer() -> Step:
    model = FrozenBackbone("detach")
    step = classification(model, 3, 8, 8)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)
    return Step(model=model, batch=step.batch, loss_fn=step.loss_fn, optimizer=optimizer)


def fine_tuning_from_the_middle() -> Step:
    net = mlp(16, 32, 32, 32, 4, activation=nn.GELU)
    net[:4].requires_grad_(False)
    return classification(net, 16)


def only_biases_and_norms_trained() -> Step:
    net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("bias" in name or name.startswith("1."))
    return classification(net, 16)


def prompt_tuning() -> Step:
    class Prompted(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 4)
            self.requires_grad_(False)
            self.prompt = nn.Parameter(0.02 * torch.randn(1, 5, 16))

        def forward(self, x):
            x = torch.cat([self.prompt.expand(len(x), -1, -1), x], dim=1)
            return self.head(self.encoder(x).mean(1))

    return classification(Prompted(), 6, 16)


class Byol(nn.Module):
    """An online network that predicts what its moving average says."""

    def __init__(self, *, frozen: bool):
        super().__init__()
        self.online = nn.Sequential(
            nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
        )
        self.predictor = mlp(8, 16, 8)
        self.target = copy.deepcopy(self.online)
        if frozen:
            self.target.requires_grad_(False)

    def training_loss(self, first: Tensor, second: Tensor) -> Tensor:
        prediction = functional.normalize(self.predictor(self.online(first)), dim=-1)
        with torch.no_grad():
            goal = functional.normalize(self.target(second), dim=-1)
        return (2 - 2 * (prediction * goal).sum(-1)).mean()


def _two_views(model: nn.Module) -> Step:
    x = torch.randn(32, 16)
    views = (x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    return Step(
        model=model,
        batch=views,
        loss_fn=lambda model, batch: model.training_loss(*batch),
        optimizer=adam(model),
    )


def byol() -> Step:
    return _two_views(Byol(frozen=True))


def byol_target_under_no_grad_only() -> Step:
    model = Byol(frozen=False)
    step = _two_views(model)
    trained = [*model.online.parameters(), *model.predictor.parameters()]
    return Step(
        model=model,
        batch=step.batch,
        loss_fn=step.loss_fn,
        optimizer=torch.optim.SGD(trained, lr=0.05, momentum=0.9),
    )


def simsiam() -> Step:
    class SimSiam(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
            )
            self.predictor = mlp(8, 4, 8)

        def training_loss(self, first, second):
            z1, z2 = self.encoder(first), self.encoder(second)
            p1, p2 = self.predictor(z1), self.predictor(z2)
            similar = nn.CosineSimilarity(dim=1)
            return -(similar(p1, z2.detach()).mean() + similar(p2, z1.detach()).mean()) / 2

    return _two_views(SimSiam())


def moco() -> Step:
    class Moco(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = mlp(16, 32, 8)
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", functional.normalize(torch.randn(8, 64), dim=0))

        def training_loss(self, first, second):
            q = functional.normalize(self.query(first), dim=1)
            with torch.no_grad():
                for old, new in zip(self.key.parameters(), self.query.parameters(), strict=True):
                    old.data = old.data * 0.99 + new.data * 0.01
                k = functional.normalize(self.key(second), dim=1)
            positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
            logits = torch.cat([positive, negative], dim=1) / 0.07
            return functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))

    return _two_views(Moco())


def mean_teacher() -> Step:
    class MeanTeacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = mlp(16, 32, 4)
            self.teacher = copy.deepcopy(self.student)
            for parameter in self.teacher.parameters():
                parameter.detach_()

        def training_loss(self, first, second):
            logits = self.student(first)
            with torch.no_grad():
                goal = self.teacher(second)
            supervised = functional.cross_entropy(logits[:8], torch.arange(8) % 4)
            return supervised + functional.mse_loss(logits.softmax(-1), goal.softmax(-1))

    return _two_views(MeanTeacher())


def knowledge_distillation() -> Step:
    class Distillation(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = mlp(16, 16, 4)
            self.teacher = mlp(16, 64, 4).eval()

        def training_loss(self, x, _):
            with torch.no_grad():
                goal = self.teacher(x)
            logits = self.student(x)
            return functional.kl_div(
                functional.log_softmax(logits / 2, -1),
                (goal / 2).softmax(-1),
                reduction="batchmean",
            )

    model = Distillation()
    step = _two_views(model)
    return Step(
        model=model,
        batch=step.batch,
        loss_fn=step.loss_fn,
        optimizer=torch.optim.Adam(model.student.parameters(), lr=1e-3),
    )


def dino_loss_with_centre() -> Step:
    class Dino(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = mlp(16, 32, 8, activation=nn.GELU)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)
            self.register_buffer("centre", torch.zeros(1, 8))

        def training_loss(self, first, second):
            student = functional.log_softmax(self.student(first) / 0.1, dim=-1)
            teacher = self.teacher(second)
            goal = functional.softmax((teacher - self.centre) / 0.04, dim=-1).detach()
            self.centre = self.centre * 0.9 + teacher.mean(0, keepdim=True).detach() * 0.1
            return -(goal * student).sum(-1).mean()

    return _two_views(Dino())


FREEZING = lookalikes(
    lora,
    lora_modules_to_save,
    frozen_backbone,
    backbone_under_no_grad,
    frozen_backbone_in_eval_mode,
    only_the_head_in_the_optimizer,
    fine_tuning_from_the_middle,
    only_biases_and_norms_trained,
    prompt_tuning,
    byol,
    byol_target_under_no_grad_only,
    simsiam,
    moco,
    mean_teacher,
    knowledge_distillation,
    dino_loss_with_centre,
)
