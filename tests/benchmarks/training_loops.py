"""Ten small training scripts of the kinds that tutorials and examples show.

Each is a generator without end that yields after each of its iterations, so that whoever drives it
decides how many are run, and when they are watched.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

Loop = Callable[[], Iterator[None]]


class DigitNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(16 * 144, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        x = self.dropout1(functional.max_pool2d(x, 2)).flatten(1)
        x = self.dropout2(functional.relu(self.fc1(x)))
        return functional.log_softmax(self.fc2(x), dim=1)


def digits() -> Iterator[None]:
    """A convolutional network on images like MNIST's, with a scheduler and a test each epoch."""
    images, labels = torch.randn(512, 1, 28, 28), torch.randint(0, 10, (512,))
    train = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
    test = DataLoader(TensorDataset(images[:64], labels[:64]), batch_size=32)
    model = DigitNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.99)
    while True:
        model.train()
        for index, (data, target) in enumerate(train):
            optimizer.zero_grad()
            loss = functional.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if index % 10 == 0:
                loss.item()
            yield
        model.eval()
        with torch.no_grad():
            for data, target in test:
                functional.nll_loss(model(data), target, reduction="sum").item()
        scheduler.step()


class CharNet(nn.Module):
    def __init__(self, letters: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Embedding(letters, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.Linear(width, letters)

    def forward(
        self, text: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, state = self.rnn(self.encoder(text), state)
        return self.decoder(output), state


def letters() -> Iterator[None]:
    """A recurrent network on characters, with a new hidden state for each chunk of text."""
    text = torch.randint(0, 60, (20_000,))
    model, criterion = CharNet(60, 48), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    while True:
        starts = [random.randrange(len(text) - 31) for _ in range(8)]
        chunk = torch.stack([text[start : start + 31] for start in starts])
        state = (torch.zeros(1, 8, 48), torch.zeros(1, 8, 48))
        model.zero_grad()
        output, state = model(chunk[:, :-1], state)
        loss = criterion(output.flatten(0, 1), chunk[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        loss.item()
        yield


class Pole:
    """A pole on a cart, which an action pushes to the left or to the right."""

    def reset(self) -> list[float]:
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        _, speed, angle, turn = self.state
        force, cosine, sine = (10.0 if action else -10.0), math.cos(angle), math.sin(angle)
        push = (force + 0.05 * turn * turn * sine) / 1.1
        bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        pull = push - 0.05 * bend * cosine / 1.1
        rates = (speed, pull, turn, bend)
        self.state = [old + 0.02 * rate for old, rate in zip(self.state, rates, strict=True)]
        return self.state, 1.0, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


def policy_gradient() -> Iterator[None]:
    """REINFORCE on a cart with a pole: episodes of any length, and a tiny network."""
    pole = Pole()
    policy = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.6), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    while True:
        state, rewards, chosen = pole.reset(), [], []
        for _ in range(12):
            probabilities = policy(torch.tensor(state).unsqueeze(0)).softmax(1)
            options = Categorical(probabilities)
            action = options.sample()
            chosen.append(options.log_prob(action))
            state, reward, is_over = pole.step(int(action.item()))
            rewards.append(reward)
            if is_over:
                break
        worth, returns = 0.0, deque[float]()
        for reward in reversed(rewards):
            worth = reward + 0.99 * worth
            returns.appendleft(worth)
        goals = torch.tensor(returns)
        goals = (goals - goals.mean()) / (goals.std() + 1e-6)
        optimizer.zero_grad()
        loss = torch.cat([-one * goal for one, goal in zip(chosen, goals, strict=True)]).sum()
        loss.backward()
        optimizer.step()
        yield


def adversaries() -> Iterator[None]:
    """A generator and a discriminator, each with an optimizer of its own."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    criterion = nn.BCELoss()
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images = torch.rand(256, 1, 16, 16) * 2 - 1
    loader = DataLoader(TensorDataset(images), batch_size=16, shuffle=True)
    real, fake = torch.ones(16), torch.zeros(16)
    while True:
        for (batch,) in loader:
            discriminator.zero_grad()
            on_real = criterion(discriminator(batch).flatten(), real)
            on_real.backward()
            made = generator(torch.randn(16, 16, 1, 1))
            on_fake = criterion(discriminator(made.detach()).flatten(), fake)
            on_fake.backward()
            (on_real + on_fake).item()
            of_discriminator.step()
            generator.zero_grad()
            loss = criterion(discriminator(made).flatten(), real)
            loss.backward()
            loss.item()
            of_generator.step()
            yield


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mean, self.spread = (
            nn.Linear(196, 128),
            nn.Linear(128, 10),
            nn.Linear(128, 10),
        )
        self.widen, self.leave = nn.Linear(10, 128), nn.Linear(128, 196)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = functional.relu(self.enter(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return torch.sigmoid(self.leave(functional.relu(self.widen(code)))), mean, spread


def autoencoder() -> Iterator[None]:
    """A variational autoencoder with a loss of two terms."""
    loader = DataLoader(TensorDataset(torch.rand(1024, 196)), batch_size=32, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = 0.0
    while True:
        for (batch,) in loader:
            optimizer.zero_grad()
            output, mean, spread = model(batch)
            error = functional.binary_cross_entropy(output, batch, reduction="sum")
            distance = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
            loss = error + distance
            loss.backward()
            total += loss.item()
            optimizer.step()
            yield


def polynomial() -> Iterator[None]:
    """A polynomial of the third degree fitted to a sine, with weights changed by hand."""
    x = torch.linspace(-math.pi, math.pi, 2000)
    y = torch.sin(x)
    a, b, c, d = (torch.randn((), requires_grad=True) for _ in range(4))
    step = 0
    while True:
        step += 1
        loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
        if step % 100 == 99:
            loss.item()
        loss.backward()
        with torch.no_grad():
            a -= 1e-6 * a.grad
            b -= 1e-6 * b.grad
            c -= 1e-6 * c.grad
            d -= 1e-6 * d.grad
            a.grad = None
            b.grad = None
            c.grad = None
            d.grad = None
        yield


def differential_equation() -> Iterator[None]:
    """A network fitted to a spiral as its rate of change: many small operations a step."""
    field = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    start = torch.randn(16, 2)
    target = torch.stack([start @ torch.matrix_exp(matrix * 0.1 * i).T for i in range(1, 7)])
    while True:
        optimizer.zero_grad()
        state, path = start, []
        for _ in range(6):
            k1 = field(state**3)
            k2 = field((state + 0.05 * k1) ** 3)
            k3 = field((state + 0.05 * k2) ** 3)
            k4 = field((state + 0.1 * k3) ** 3)
            state = state + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(state)
        loss = (torch.stack(path) - target).abs().mean()
        loss.backward()
        optimizer.step()
        yield


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1))
        self.two = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([state, action], 1)
        return self.one(both), self.two(both)


def act(actor: nn.Module, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions drawn from a policy, and their logarithmic probabilities."""
    mean, spread = actor(state).chunk(2, dim=1)
    options = Normal(mean, spread.clamp(-5, 2).exp())
    drawn = options.rsample()
    action = drawn.tanh()
    return action, options.log_prob(drawn) - torch.log(1 - action.pow(2) + 1e-6)


def actor_critic() -> Iterator[None]:
    """Soft actor-critic: three optimizers, a target network, a policy updated now and then."""
    actor = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    critic, aim = Critic(), Critic()
    aim.load_state_dict(critic.state_dict())
    log_alpha = torch.zeros(1, requires_grad=True)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    of_alpha = torch.optim.Adam([log_alpha], lr=1e-3)
    states, actions = torch.randn(4096, 4), torch.rand(4096, 1) * 2 - 1
    rewards, following = torch.randn(4096, 1), torch.randn(4096, 4)
    step = 0
    while True:
        step += 1
        with torch.no_grad():  # what is done in the environment
            act(actor, states[step % 4096 : step % 4096 + 1])
        batch = torch.randint(0, 4096, (64,))
        state, alpha = states[batch], log_alpha.exp().item()
        with torch.no_grad():
            chosen, likely = act(actor, following[batch])
            worth = torch.min(*aim(following[batch], chosen)) - alpha * likely
            goal = rewards[batch] + 0.99 * worth
        one, two = critic(state, actions[batch])
        loss = functional.mse_loss(one, goal) + functional.mse_loss(two, goal)
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        if step % 2 == 0:
            chosen, likely = act(actor, state)
            of_policy = (alpha * likely - torch.min(*critic(state, chosen))).mean()
            of_actor.zero_grad()
            of_policy.backward()
            of_actor.step()
            of_temperature = (-log_alpha.exp() * (likely.detach() - 1.0)).mean()
            of_alpha.zero_grad()
            of_temperature.backward()
            of_alpha.step()
        for target, parameter in zip(aim.parameters(), critic.parameters(), strict=True):
            target.data.copy_(0.005 * parameter.data + 0.995 * target.data)
        yield


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * (s + x * s * (1 - s))


def gradient_checks() -> Iterator[None]:
    """A function of one's own that is checked again and again, and trained a step in between."""
    weight = torch.randn(4, 4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-2)
    step = 0
    while True:
        step += 1
        inputs = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
        torch.autograd.gradcheck(Swish.apply, (inputs,))
        x = torch.randn(8, 4, requires_grad=True)
        output = Swish.apply(x @ weight)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        for row in range(4):
            torch.autograd.grad(slope[:, row].sum(), x, retain_graph=True)
        if step % 10 == 0:
            optimizer.zero_grad()
            Swish.apply(x.detach() @ weight).square().mean().backward()
            optimizer.step()
        yield


class WordNet(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, 2, dropout=0.2)
        self.decoder = nn.Linear(width, words)

    def forward(self, text: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        output, state = self.rnn(self.drop(self.encoder(text)), state)
        return functional.log_softmax(self.decoder(self.drop(output)).flatten(0, 1), 1), state


def words() -> Iterator[None]:
    """A word language model: hidden state carried over, clipping, and weights changed by hand."""
    model, criterion = WordNet(400, 64), nn.NLLLoss()
    text = torch.randint(0, 400, (1500, 8))
    while True:
        model.train()
        total, state = 0.0, torch.zeros(2, 8, 64)
        for start in range(0, len(text) - 21, 20):
            model.zero_grad()
            state = state.detach()
            output, state = model(text[start : start + 20], state)
            loss = criterion(output, text[start + 1 : start + 21].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-1.0)
            total += loss.item()
            yield
        model.eval()
        with torch.no_grad():
            criterion(model(text[:20], torch.zeros(2, 8, 64))[0], text[1:21].flatten()).item()


LOOPS: tuple[Loop, ...] = (
    digits,
    letters,
    policy_gradient,
    adversaries,
    autoencoder,
    polynomial,
    differential_equation,
    actor_critic,
    gradient_checks,
    words,
)
