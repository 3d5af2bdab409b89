"""Scripts that clip or schedule at a wrong place, and the edit a reviewer would accept."""

from tests.fixes.odd_program import HEADER, adding_trainings_to

PROGRAMS = []
START = (
    HEADER
    + """torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=.01)
data = [(torch.randn(8, 4), 9 * torch.ones(8, 1)) for _ in range(24)]
"""
)
SCALED = START + 'scaler = torch.amp.GradScaler("cpu", init_scale=2.**6)\n'
add = adding_trainings_to(PROGRAMS, START)

add(
    "GS401", "method_that_clips",
    """
    class Trainer:
        def __init__(self): self.net, self.opt = net, opt
        def clip(self): nn.utils.clip_grad_norm_(self.net.parameters(), .01)
        def fit(self):
            for x, y in data:
                self.opt.zero_grad()
                F.mse_loss(self.net(x), y).backward()
                self.opt.step()
                self.clip()
    Trainer().fit()
    """,
    "self.clip()",
)  # fmt: skip
add(
    "GS401", "lambda_that_does_both",
    """
    update = lambda: (opt.step(), nn.utils.clip_grad_norm_(net.parameters(), .01))
    for x, y in data:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        update()
    """,
    None,
)  # fmt: skip
add(
    "GS401", "stored_norm",
    """
    norms = []
    for x, y in data:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
        norm = nn.utils.clip_grad_norm_(net.parameters(), .01)
        norms.append(norm.item())
    """,
    "norm = nn.utils.clip_grad_norm_(net.parameters(), .01)",
)  # fmt: skip
add(
    "GS401", "values_of_each_group",
    """
    limit = 20.
    for x, y in data:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
        if limit:
            for group in opt.param_groups: nn.utils.clip_grad_value_(group["params"], limit)
    """,
    "opt.step()",
)  # fmt: skip
add(
    "GS401", "closure",
    """
    def closure():
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss
    for x, y in data:
        opt.step(closure)
        nn.utils.clip_grad_norm_(net.parameters(), .01)
    """,
    None,
)  # fmt: skip
add(
    "GS401", "norm_of_the_step_before",
    """
    for x, y in data:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step(); seen = [p.grad.norm() for p in net.parameters()]
        nn.utils.clip_grad_norm_(net.parameters(), min(seen))
    """,
    None,
)  # fmt: skip
add(
    "GS402", "one_line",
    """
    from torch.nn.utils import clip_grad_norm_ as clip
    for x, y in data:
        opt.zero_grad(); clip(net.parameters(), .01); F.mse_loss(net(x), y).backward(); opt.step()
    """,
    "opt.zero_grad(); F.mse_loss(net(x), y).backward(); clip(net.parameters(), .01); opt.step()",
)  # fmt: skip
add(
    "GS402", "before_zero_grad",
    """
    from torch.nn.utils import clip_grad_norm_ as clip
    for x, y in data:
        clip(net.parameters(), max_norm=.01)
        net.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        # apply
        opt.step()
    """,
    "clip(net.parameters(), max_norm=.01)",
)  # fmt: skip
add(
    "GS402", "function_that_clips",
    """
    def clip():
        nn.utils.clip_grad_norm_(net.parameters(), .01)
    for x, y in data:
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        clip()
        loss.backward()
        opt.step()
    """,
    "loss.backward()",
)  # fmt: skip
add(
    "GS402", "backward_in_a_function",
    """
    def gradients(x, y):
        F.mse_loss(net(x), y).backward()
    for x, y in data:
        opt.zero_grad()
        nn.utils.clip_grad_norm_(net.parameters(), .01)
        gradients(x, y)
        opt.step()
    """,
    "gradients(x, y)",
)  # fmt: skip
add(
    "GS402", "accumulated",
    """
    for i, (x, y) in enumerate(data):
        if i % 2 == 0:
            opt.zero_grad()
            nn.utils.clip_grad_norm_(net.parameters(), .01)
        (F.mse_loss(net(x), y) / 2).backward()
        if i % 2: opt.step()
    """,
    None,
)  # fmt: skip
add(
    "GS403", "condition_around_the_clip",
    """
    max_norm = 1.
    for x, y in data:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16): loss = F.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        if max_norm > 0:
            nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        scaler.step(opt)
        scaler.update()
    """,
    "scaler.unscale_(opt)", around=SCALED,
)  # fmt: skip
add(
    "GS403", "all_on_one_line",
    """
    from torch.nn.utils import clip_grad_norm_ as clip
    for x, y in data:
        opt.zero_grad(); scaler.scale(F.mse_loss(net(x), y)).backward()
        clip(net.parameters(), 1.); scaler.step(opt); scaler.update()
    """,
    "scaler.unscale_(opt); clip(net.parameters(), 1.); scaler.step(opt); scaler.update()",
    around=SCALED,
)  # fmt: skip
add(
    "GS403", "condition_of_one_line_at_a_window",
    """
    for i, (x, y) in enumerate(data):
        scaler.scale(F.mse_loss(net(x), y) / 2).backward()
        if i % 2:
            if True: nn.utils.clip_grad_norm_(net.parameters(), 1.)
            scaler.step(opt); scaler.update(); opt.zero_grad()
    """,
    "if True: scaler.unscale_(opt); nn.utils.clip_grad_norm_(net.parameters(), 1.)", around=SCALED,
)  # fmt: skip
add(
    "GS403", "two_optimizers",
    """
    other = nn.Linear(4, 1); opt2 = torch.optim.SGD(other.parameters(), lr=.01)
    for x, y in data:
        opt.zero_grad(); opt2.zero_grad()
        scaler.scale(F.mse_loss(net(x) + other(x), y)).backward()
        nn.utils.clip_grad_norm_([*net.parameters(), *other.parameters()], 1.)
        scaler.step(opt); scaler.step(opt2)
        scaler.update()
    """,
    None, around=SCALED,
)  # fmt: skip
add(
    "GS403", "method_that_clips",
    """
    class Loop:
        def clip(self): nn.utils.clip_grad_norm_(net.parameters(), 1.)
        def run(self):
            for x, y in data:
                opt.zero_grad()
                scaler.scale(F.mse_loss(net(x), y)).backward()
                self.clip()
                scaler.step(opt)
                scaler.update()
    Loop().run()
    """,
    "scaler.unscale_(opt)", around=SCALED,
)  # fmt: skip
add(
    "GS404", "first_layer_by_its_index",
    """
    for x, y in data:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        nn.utils.clip_grad_norm_(net[0].parameters(), .01)
        opt.step()
    """,
    "nn.utils.clip_grad_norm_(net.parameters(), .01)",
)  # fmt: skip
add(
    "GS404", "trainer_with_a_head",
    """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.01)
        def step(self, x, y):
            self.optimizer.zero_grad(); F.mse_loss(self.model(x), y).backward()
            nn.utils.clip_grad_norm_(self.model[2].parameters(), .01); self.optimizer.step()
    t = Trainer(net)
    for x, y in data: t.step(x, y)
    """,
    "nn.utils.clip_grad_norm_(self.model.parameters(), .01); self.optimizer.step()",
    around=START.replace("opt = ", "# "),
)  # fmt: skip
add(
    "GS409", "method_of_a_class",
    """
    class Loop:
        def __init__(self): self.every = 4
        def run(self):
            for i, (x, y) in enumerate(data):
                (F.mse_loss(net(x), y) / self.every).backward()
                nn.utils.clip_grad_norm_(net.parameters(), .01)
                if (i + 1) % self.every == 0:
                    opt.step()
                    opt.zero_grad()
    Loop().run()
    """,
    "nn.utils.clip_grad_norm_(net.parameters(), .01)",
)  # fmt: skip
add(
    "GS409", "alias_and_condition_on_one_line",
    """
    from torch.nn.utils import clip_grad_norm_ as clip
    for i, (x, y) in enumerate(data):
        (F.mse_loss(net(x), y) / 4).backward()
        clip(net.parameters(), .01)
        if i % 4 == 3: opt.step(); opt.zero_grad()
    """,
    "if i % 4 == 3: clip(net.parameters(), .01); opt.step(); opt.zero_grad()",
)  # fmt: skip
add(
    "GS409", "function_that_does_both",
    """
    def one(x, y):
        (F.mse_loss(net(x), y) / 4).backward()
        nn.utils.clip_grad_norm_(net.parameters(), .01)
    for i, (x, y) in enumerate(data):
        one(x, y)
        if i % 4 == 3: opt.step(); opt.zero_grad()
    """,
    None,
)  # fmt: skip
add(
    "GS311", "attributes_of_a_class",
    """
    class Fit:
        def __init__(self):
            self.opt = opt; self.sched = torch.optim.lr_scheduler.ExponentialLR(opt, .9)
        def __call__(self):
            for x, y in data:
                self.opt.zero_grad(); F.mse_loss(net(x), y).backward()
                self.sched.step()
                self.opt.step()
    Fit()()
    """,
    "self.opt.step()",
)  # fmt: skip
add(
    "GS311", "several_schedulers",
    """
    from torch.optim import lr_scheduler as S
    schedules = [S.ExponentialLR(opt, .9), S.LinearLR(opt, total_iters=5)]
    for x, y in data:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        for one in schedules:
            one.step()
        opt.step()
    """,
    "opt.step()",
)  # fmt: skip
add(
    "GS311", "function_that_steps_both",
    """
    sched = torch.optim.lr_scheduler.StepLR(opt, 3)
    def update(): sched.step(); opt.step(); opt.zero_grad()
    for x, y in data:
        F.mse_loss(net(x), y).backward(); update()
    """,
    "def update(): opt.step(); sched.step(); opt.zero_grad()",
)  # fmt: skip
add(
    "GS311", "scheduler_of_the_epoch_first",
    """
    sched = torch.optim.lr_scheduler.StepLR(opt, 2)
    for epoch in range(4):
        sched.step()
        for x, y in data[:6]:
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
        print(epoch)
    """,
    "sched.step()",
)  # fmt: skip
add(
    "GS311", "scaler_steps",
    """
    sched = torch.optim.lr_scheduler.StepLR(opt, 2)
    for x, y in data:
        opt.zero_grad()
        scaler.scale(F.mse_loss(net(x), y)).backward()
        sched.step()
        scaler.step(opt)
        scaler.update()
    """,
    "scaler.step(opt)", around=SCALED,
)  # fmt: skip
