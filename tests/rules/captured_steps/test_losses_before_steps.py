"""Two losses before two steps: the first step overwrites what the second loss needs."""

import pytest
import torch
from torch import nn

import gradscope


def test_the_step_is_named_and_what_to_do(tmp_path):
    torch.manual_seed(0)
    generator, critic = nn.Linear(4, 2), nn.Linear(2, 1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    with pytest.raises(RuntimeError, match="inplace"), gradscope.watch() as watch:
        fake = generator(torch.randn(8, 4))
        loss_of_critic = critic(fake.detach()).mean()
        loss_of_generator = -critic(fake).mean()
        loss_of_critic.backward()
        of_critic.step()
        loss_of_generator.backward()
        of_generator.step()
    (found,) = watch.findings
    assert (found.rule, found.location.source) == ("GS503", "of_critic.step()")
    assert "an optimizer's step() overwrites" in found.message
    assert found.remedy == "call this backward() before the step, or recompute its loss after it"
