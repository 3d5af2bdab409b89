"""Losses that give much of the batch, or of the model, no gradient, and say so by design."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp


def _step(model: nn.Module, batch: object, loss_fn) -> Step:
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def contrastive_pairs() -> Step:
    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = mlp(16, 32, 8), mlp(12, 32, 8)
            self.log_scale = nn.Parameter(torch.tensor(2.66))

        def forward(self, image, text):
            image = functional.normalize(self.image(image), dim=-1)
            return self.log_scale.exp() * image @ functional.normalize(self.text(text), dim=-1).T

    def loss_fn(model, batch):
        logits = model(*batch)
        goal = torch.arange(len(logits))
        return (
            functional.cross_entropy(logits, goal) + functional.cross_entropy(logits.T, goal)
        ) / 2

    return _step(Clip(), (torch.randn(16, 16), torch.randn(16, 12)), loss_fn)


def contrastive_views_without_the_diagonal() -> Step:
    def loss_fn(model, batch):
        z = functional.normalize(model(torch.cat(batch)), dim=1)
        similar = z @ z.T / 0.5
        similar.fill_diagonal_(float("-inf"))
        return functional.cross_entropy(similar, (torch.arange(32) + 16) % 32)

    x = torch.randn(16, 16)
    return _step(mlp(16, 32, 8), (x, x + 0.1 * torch.randn(16, 16)), loss_fn)


def triplets_that_are_satisfied() -> Step:
    """Every triplet keeps its margin: the loss is zero, and so is every gradient."""

    def loss_fn(model, batch):
        return functional.triplet_margin_loss(*(model(x) for x in batch), margin=0.05)

    anchor = 3 * torch.randn(8, 16)
    return _step(mlp(16, 32, 8), (anchor, anchor + 0.001, -anchor), loss_fn)


def hinge_with_few_active() -> Step:
    def loss_fn(output, target):
        return (1 - target * output.squeeze(1)).clamp(min=0).mean()

    model = mlp(16, 32, 1)
    x = torch.randn(64, 16)
    with torch.no_grad():
        model[-1].weight *= 20
        target = model(x).squeeze(1).sign()
    return _step(model, (x, target), loss_fn)


def focal_loss() -> Step:
    def loss_fn(logits, target):
        cross = functional.cross_entropy(logits, target, reduction="none")
        return ((1 - torch.exp(-cross)) ** 2 * cross).mean()

    step = classification(mlp(16, 32, 4), 16)
    return _step(step.model, step.batch, loss_fn)


def smoothed_labels() -> Step:
    step = classification(mlp(16, 32, 4), 16)
    return _step(step.model, step.batch, nn.CrossEntropyLoss(label_smoothing=0.1))


def pairwise_ranking() -> Step:
    def loss_fn(model, batch):
        better, worse = (model(x).squeeze(-1) for x in batch)
        return -functional.logsigmoid(better - worse).mean()

    return _step(mlp(16, 32, 1), (torch.randn(32, 16), torch.randn(32, 16)), loss_fn)


def quantile_regression() -> Step:
    def loss_fn(output, target):
        levels = torch.tensor([0.1, 0.5, 0.9])
        error = target - output
        return torch.maximum(levels * error, (levels - 1) * error).mean()

    return _step(mlp(16, 32, 3), (torch.randn(64, 16), torch.randn(64, 1).expand(64, 3)), loss_fn)


def several_tasks() -> Step:
    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(mlp(16, 32, 32), nn.ReLU())
            self.heads = nn.ModuleDict({"label": nn.Linear(32, 4), "value": nn.Linear(32, 1)})
            self.log_variances = nn.ParameterDict(
                {name: nn.Parameter(torch.zeros(())) for name in self.heads}
            )

        def forward(self, x):
            h = self.body(x)
            return {name: head(h) for name, head in self.heads.items()}

    def loss_fn(model, batch):
        x, label, value = batch
        out = model(x)
        losses = {
            "label": functional.cross_entropy(out["label"], label),
            "value": functional.mse_loss(out["value"], value),
        }
        weights = model.log_variances
        return sum((-weights[n]).exp() * loss + weights[n] for n, loss in losses.items())

    return _step(Tasks(), (torch.randn(16, 16), torch.arange(16) % 4, torch.randn(16, 1)), loss_fn)


def one_task_of_several() -> Step:
    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(mlp(16, 32, 32), nn.ReLU())
            self.heads = nn.ModuleList(nn.Linear(32, 4) for _ in range(3))

        def forward(self, x, task=1):
            return self.heads[task](self.body(x))

    return classification(Tasks(), 16)


def multi_label_with_rare_positives() -> Step:
    target = (torch.rand(32, 20) < 0.03).float()
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.full((20,), 10.0))
    return _step(mlp(16, 32, 20), (torch.randn(32, 16), target), loss_fn)


def detection_with_few_positives() -> Step:
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.label, self.box = nn.Conv2d(16, 1, 1), nn.Conv2d(16, 4, 1)
            nn.init.constant_(self.label.bias, -4.6)

        def forward(self, x):
            h = self.body(x)
            return self.label(h), self.box(h)

    def loss_fn(model, batch):
        x, cells, boxes = batch
        label, box = model(x)
        positive = cells.bool().expand_as(box)
        found = functional.binary_cross_entropy_with_logits(label, cells)
        return found + functional.smooth_l1_loss(box[positive], boxes[positive])

    cells = torch.zeros(4, 1, 8, 8)
    cells[:, :, 3, 4] = 1
    return _step(Detector(), (torch.randn(4, 3, 16, 16), cells, torch.rand(4, 4, 8, 8)), loss_fn)


def segmentation_with_dice_and_ignored_pixels() -> Step:
    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)
            )
            self.middle = nn.Sequential(
                nn.MaxPool2d(2),
                nn.Conv2d(8, 8, 3, padding=1, bias=False),
                nn.BatchNorm2d(8),
                nn.ReLU(True),
            )
            self.out = nn.Conv2d(16, 3, 1)

        def forward(self, x):
            down = self.down(x)
            up = functional.interpolate(self.middle(down), scale_factor=2, mode="bilinear")
            return self.out(torch.cat([down, up], dim=1))

    def loss_fn(logits, target):
        valid = target != 255
        goal = functional.one_hot(target.where(valid, 0), 3).movedim(-1, 1) * valid[:, None]
        p = logits.softmax(1) * valid[:, None]
        dice = 1 - ((2 * (p * goal).sum((0, 2, 3)) + 1) / ((p + goal).sum((0, 2, 3)) + 1)).mean()
        return functional.cross_entropy(logits, target, ignore_index=255) + dice

    target = torch.randint(3, (2, 16, 16))
    target[:, :4] = 255
    return _step(Unet(), (torch.randn(2, 3, 16, 16), target), loss_fn)


def gaussian_likelihood_with_clamped_variance() -> Step:
    def loss_fn(output, target):
        mean, log_variance = output.chunk(2, dim=1)
        return functional.gaussian_nll_loss(mean, target, log_variance.clamp(-10, 4).exp())

    return _step(mlp(16, 32, 2), (torch.randn(32, 16), torch.randn(32, 1)), loss_fn)


def policy_gradient() -> Step:
    def loss_fn(model, batch):
        states, actions, returns = batch
        policy = torch.distributions.Categorical(logits=model(states))
        advantage = (returns - returns.mean()) / (returns.std() + 1e-8)
        return -(policy.log_prob(actions) * advantage).mean() - 0.01 * policy.entropy().mean()

    return _step(
        mlp(8, 32, 4), (torch.randn(32, 8), torch.randint(4, (32,)), torch.randn(32)), loss_fn
    )


def clipped_policy() -> Step:
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(8, 32, 32, activation=nn.Tanh)
            self.actor, self.critic = nn.Linear(32, 4), nn.Linear(32, 1)

        def forward(self, states):
            h = self.body(states).tanh()
            return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)

    def loss_fn(model, batch):
        states, actions, old, returns = batch
        policy, value = model(states)
        advantage = (returns - value).detach()
        ratio = (policy.log_prob(actions) - old).exp()
        clipped = ratio.clamp(0.8, 1.2) * advantage
        surrogate = -torch.min(ratio * advantage, clipped).mean()
        return surrogate + 0.5 * (returns - value).square().mean() - 0.01 * policy.entropy().mean()

    model = ActorCritic()
    states, actions = torch.randn(32, 8), torch.randint(4, (32,))
    old = model(states)[0].log_prob(actions).detach() + 0.1 * torch.randn(32)
    return _step(model, (states, actions, old, torch.randn(32)), loss_fn)


class Dueling(nn.Module):
    """A value and the advantages of actions, with a target network beside them."""

    def __init__(self):
        super().__init__()
        self.body, self.value, self.advantage = mlp(8, 32, 32), nn.Linear(32, 1), nn.Linear(32, 4)

    def forward(self, states: Tensor) -> Tensor:
        h = self.body(states).relu()
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)


def q_learning_with_a_target_network() -> Step:
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.target = Dueling(), Dueling()
            self.target.load_state_dict(self.online.state_dict())

    def loss_fn(model, batch):
        states, actions, rewards, after, ended = batch
        q = model.online(states).gather(1, actions)
        with torch.no_grad():
            best = model.online(after).argmax(1, keepdim=True)
            goal = rewards + 0.99 * (1 - ended) * model.target(after).gather(1, best)
        return functional.smooth_l1_loss(q, goal)

    model = Agent()
    batch = (
        torch.randn(32, 8), torch.randint(4, (32, 1)), torch.randn(32, 1), torch.randn(32, 8),
        (torch.rand(32, 1) < 0.1).float(),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.online.parameters(), lr=1e-3)
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=optimizer)


def q_learning_with_a_detached_goal() -> Step:
    def loss_fn(model, batch):
        states, actions, rewards, after = batch
        q = model(states).gather(1, actions).squeeze(1)
        goal = rewards + 0.99 * model(after).max(1).values.detach()
        return functional.mse_loss(q, goal)

    batch = (torch.randn(32, 8), torch.randint(4, (32, 1)), torch.randn(32), torch.randn(32, 8))
    return _step(mlp(8, 32, 4), batch, loss_fn)


def soft_actor_step() -> Step:
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = mlp(8, 32, 4), mlp(10, 32, 1)
            self.log_alpha = nn.Parameter(torch.zeros(()))

    def loss_fn(model, states):
        mean, log_std = model.actor(states).chunk(2, dim=-1)
        policy = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        raw = policy.rsample()
        action = raw.tanh()
        log_p = (policy.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(-1)
        q = model.critic(torch.cat([states, action], dim=-1)).squeeze(-1)
        temperature = -(model.log_alpha * (log_p - 2).detach()).mean()
        return (model.log_alpha.exp().detach() * log_p - q).mean() + temperature

    model = Agent()
    optimizer = torch.optim.Adam([*model.actor.parameters(), model.log_alpha], lr=3e-4)
    return Step(model=model, batch=torch.randn(32, 8), loss_fn=loss_fn, optimizer=optimizer)


def logged_metrics() -> Step:
    """Numbers are taken out of the graph for a log, beside the loss."""

    class Logged(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.log = mlp(16, 32, 4), []

        def forward(self, x):
            h = self.net[:2](x)
            self.log.append(h.detach().abs().mean().item())
            logits = self.net[2](h)
            self.log.append(logits.argmax(1).float().mean().item())
            return logits

    return classification(Logged(), 16)


OBJECTIVES = lookalikes(
    contrastive_pairs,
    contrastive_views_without_the_diagonal,
    triplets_that_are_satisfied,
    hinge_with_few_active,
    focal_loss,
    smoothed_labels,
    pairwise_ranking,
    quantile_regression,
    several_tasks,
    one_task_of_several,
    multi_label_with_rare_positives,
    detection_with_few_positives,
    segmentation_with_dice_and_ignored_pixels,
    gaussian_likelihood_with_clamped_variance,
    policy_gradient,
    clipped_policy,
    q_learning_with_a_target_network,
    q_learning_with_a_detached_goal,
    soft_actor_step,
    logged_metrics,
)
