"""Healthy loops in which several networks, losses or optimizers take turns."""

import copy

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional

STEPS = 8


def mlp(inputs: int, outputs: int, hidden: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def generator_and_discriminator():
    generator, critic = mlp(4, 2), mlp(2, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    loss_of = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        fake = generator(torch.randn(32, 4))
        of_critic.zero_grad()
        real, made = critic(torch.randn(32, 2) + 1), critic(fake.detach())
        loss = loss_of(real, torch.ones(32, 1)) + loss_of(made, torch.zeros(32, 1))
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        loss_of(critic(fake), torch.ones(32, 1)).backward()
        of_generator.step()


def a_discriminator_that_is_frozen_in_turn():
    generator, critic = mlp(4, 2), mlp(2, 1)
    of_generator = torch.optim.RMSprop(generator.parameters(), lr=1e-4)
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
    for _ in range(STEPS):
        critic.requires_grad_(True)
        with torch.no_grad():
            fake = generator(torch.randn(32, 4))
        of_critic.zero_grad()
        (critic(fake).mean() - critic(torch.randn(32, 2)).mean()).backward()
        of_critic.step()
        critic.requires_grad_(False)
        of_generator.zero_grad()
        (-critic(generator(torch.randn(32, 4))).mean()).backward()
        of_generator.step()


def q_learning():
    q = mlp(4, 2)
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    for _ in range(STEPS):
        state, following = torch.randn(32, 4), torch.randn(32, 4)
        action, reward = torch.randint(0, 2, (32, 1)), torch.randn(32)
        with torch.no_grad():
            wanted = reward + 0.9 * target(following).max(1).values
        loss = functional.smooth_l1_loss(q(state).gather(1, action).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def an_actor_that_climbs_its_critic():
    actor, critic = mlp(4, 2), mlp(6, 1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        state = torch.randn(32, 4)
        with torch.no_grad():
            done = Normal(actor(state), 0.1).sample()
        reward = -(done - state[:, :2]).pow(2).sum(1, keepdim=True)
        of_critic.zero_grad()
        functional.mse_loss(critic(torch.cat([state, done], 1)), reward).backward()
        of_critic.step()
        of_actor.zero_grad()
        planned = Normal(actor(state), 0.1).rsample()
        (-critic(torch.cat([state, planned], 1)).mean()).backward()
        of_actor.step()


def actor_and_critic_that_step_together():
    actor, critic = mlp(4, 2), mlp(4, 1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        state = torch.randn(32, 4)
        policy = Categorical(logits=actor(state))
        action = policy.sample()
        advantage = (action == (state[:, 0] > 0)).float() - critic(state).squeeze(1)
        of_actor.zero_grad()
        of_critic.zero_grad()
        (-(policy.log_prob(action) * advantage.detach()).mean()).backward()
        advantage.pow(2).mean().backward()
        of_actor.step()
        of_critic.step()


def tasks_that_take_turns():
    body, heads = mlp(4, 16), nn.ModuleDict({"a": nn.Linear(16, 2), "b": nn.Linear(16, 3)})
    optimizer = torch.optim.AdamW([*body.parameters(), *heads.parameters()], lr=1e-3)
    for step in range(STEPS):
        task = "ab"[step % 2]
        features = torch.randn(32, 4)
        output = heads[task](body(features))
        optimizer.zero_grad()
        functional.cross_entropy(output, (features[:, 0] > 0).long()).backward()
        optimizer.step()


def an_average_as_target():
    online, predictor = mlp(8, 8), mlp(8, 8)
    average = copy.deepcopy(online)
    optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05)
    for _ in range(STEPS):
        features = torch.randn(32, 8)
        with torch.no_grad():
            target = average(features + 0.1 * torch.randn(32, 8))
        optimizer.zero_grad()
        (-functional.cosine_similarity(predictor(online(features)), target).mean()).backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.01)


def a_teacher():
    teacher, student = mlp(8, 3).eval(), mlp(8, 3)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for _ in range(STEPS):
        features = torch.randn(32, 8)
        with torch.no_grad():
            target = teacher(features).softmax(1)
        output = student(features).log_softmax(1)
        optimizer.zero_grad()
        functional.kl_div(output, target, reduction="batchmean").backward()
        optimizer.step()


def features_learned_before():
    encoder, decoder, head = mlp(8, 4), mlp(4, 8), nn.Linear(4, 2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(STEPS):
        features = torch.randn(32, 8)
        optimizer.zero_grad()
        functional.mse_loss(decoder(encoder(features)), features).backward()
        optimizer.step()
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(STEPS):
        features = torch.randn(32, 8)
        with torch.no_grad():
            code = encoder(features)
        optimizer.zero_grad()
        functional.cross_entropy(head(code), (features[:, 0] > 0).long()).backward()
        optimizer.step()


PLAYERS = (
    generator_and_discriminator,
    a_discriminator_that_is_frozen_in_turn,
    q_learning,
    an_actor_that_climbs_its_critic,
    actor_and_critic_that_step_together,
    tasks_that_take_turns,
    an_average_as_target,
    a_teacher,
    features_learned_before,
)
