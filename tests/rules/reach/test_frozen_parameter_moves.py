import pytest
import torch

from tests.nightly import some_on_push
from tests.rules.inspecting import only
from tests.rules.optimizing import Net, inspected
from tests.rules.watching import findings_of as run_findings


class Decaying(torch.optim.Optimizer):
    """Decays everything, or only what has a gradient."""

    def __init__(self, parameters, *, everything: bool) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self.everything = everything

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            if self.everything or parameter.grad is not None:
                parameter.mul_(0.99)


def frozen() -> Net:
    model = Net()
    model.embed.requires_grad_(False)
    return model


def test_decay_of_a_frozen_layer_is_found_and_measured():
    report = inspected(lambda ps: Decaying(ps, everything=True), frozen())
    finding = only(report.findings, "GS212")
    assert finding.severity == "warning"
    assert finding.parameters == ("embed.weight", "embed.bias")
    assert dict(finding.evidence)["update_ratio"] == pytest.approx(0.01, rel=1e-5)
    assert [one.rule for one in finding.consequences] == ["GS208"]


@pytest.mark.parametrize(
    "optimizer",
    some_on_push(
        [
            lambda ps: Decaying(ps, everything=False),
            lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.1),
            lambda ps: torch.optim.AdamW(ps, weight_decay=0.1),
        ],
        {0, 1},
    ),
    ids=["own", "SGD", "AdamW"],
)
def test_optimizers_that_pass_over_what_has_no_gradient_are_left_alone(optimizer):
    assert "GS212" not in {f.rule for f in inspected(optimizer, frozen()).findings}


def test_teacher_that_follows_by_averaging_is_left_alone():
    model = frozen()

    def follow(optimizer, args, kwargs):
        with torch.no_grad():
            model.embed.weight.mul_(0.99)

    def optimizer(_):
        made = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
        made.register_step_post_hook(follow)
        return made

    assert "GS212" not in {f.rule for f in inspected(optimizer, model).findings}


def test_without_an_optimizer_it_is_not_judged(findings_of):
    model = frozen()
    assert "GS212" not in {f.rule for f in findings_of(model, torch.randn(3, 6), "mean")}


@pytest.mark.parametrize("keeps_zeros", some_on_push([True, False], 2))
def test_a_freeze_that_no_captured_step_shows(keeps_zeros, tmp_path):
    """Only the first steps are captured; later ones have their norms measured."""

    def loop():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-2)
        for step in range(40):
            if step == 20:
                model[0].requires_grad_(False)
            optimizer.zero_grad(set_to_none=not keeps_zeros)
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()

    found = [one for one in run_findings(loop, tmp_path) if one.rule == "GS212"]
    assert [one.severity for one in found] == ["warning"] * keeps_zeros
    for one in found:
        assert set(one.parameters) == {"model.0.weight", "model.0.bias"}
        assert "zero_grad" in one.location.source or "requires_grad_" in one.location.source


@pytest.mark.parametrize("decays", [False, True])
def test_what_is_frozen_for_the_other_loss_alone_may_move(decays, tmp_path):
    """The generator's passes are accumulated: some precede a step of the critic."""

    def loop():
        torch.manual_seed(0)
        maker, critic = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
        of_maker = torch.optim.SGD(maker.parameters(), 0.01)
        moving = (lambda ps: Decaying(ps, everything=True)) if decays else torch.optim.Adam
        of_critic = moving(critic.parameters())
        if decays:
            critic.requires_grad_(False)
        for step in range(12):
            if not decays:
                of_critic.zero_grad()
                gap = critic(maker(torch.randn(8, 3)).detach()) - critic(torch.randn(8, 2))
                gap.mean().backward()
            of_critic.step()
            critic.requires_grad_(False)
            (-critic(maker(torch.randn(8, 3))).mean() / 2).backward()
            critic.requires_grad_(not decays)
            if step % 2:
                of_maker.step()
                of_maker.zero_grad()

    found = [one for one in run_findings(loop, tmp_path) if one.rule == "GS212"]
    assert [one.severity for one in found] == ["warning"] * decays
