"""Scripts whose optimizers miss parameters or step at the wrong time, formatted in many ways."""

from pathlib import Path

from tests.fixes.odd_program import HEADER, Program, adding_to

PROGRAMS: list[Program] = []
_add = adding_to(PROGRAMS)

EVERYDAY = Path(__file__).parents[1] / "programs" / "everyday" / "sick"
MODELS = (
    HEADER
    + """import copy, itertools
from torch.func import functional_call, stack_module_state, vmap
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.scale = nn.Parameter(torch.ones(()))
    def forward(self, x): return self.c(self.b(self.a(x).tanh()).tanh()) * self.scale
    def widen(self): self.c = nn.Linear(8, 1)
x, y = torch.randn(24, 8, 4), torch.randn(24, 8, 1)
def fit(model, optimizer, first=0, last=24):
    for i in range(first, last):
        optimizer.zero_grad(); model.zero_grad()
        F.mse_loss(model(x[i]), y[i]).backward()
        optimizer.step()
"""
)


def add(rule, name, text, *added, around=MODELS, **further):
    _add(rule, name, text, *added, around=around, is_training=True, **further)


add(
    "GS205", "sum_without_a_part",
    """
    model = Net()
    optimizer = torch.optim.SGD(
        list(model.a.parameters()) + list(model.c.parameters()) + [model.scale], lr=.01,
    )
    fit(model, optimizer)
    """,
    "list(model.a.parameters()) + list(model.c.parameters()) + [model.scale] "
    "+ list(model.b.parameters()), lr=.01,",
)  # fmt: skip
add(
    "GS205", "starred_list_without_a_part",
    """
    model = Net(); held = [*model.a.parameters(), *model.b.parameters(), model.scale]
    fit(model, torch.optim.SGD([*held], .01))
    """,
    "fit(model, torch.optim.SGD([*held, *model.c.parameters()], .01))",
)  # fmt: skip
add(
    "GS205", "starred_list_without_a_weight",
    """
    model = Net(); held = [*model.a.parameters(), *model.b.parameters(), *model.c.parameters()]
    fit(model, torch.optim.SGD(held, .01))
    """,
    "model = Net(); held = [*model.a.parameters(), *model.b.parameters(), "
    "*model.c.parameters(), model.scale]",
)  # fmt: skip
add(
    "GS205", "chain_without_a_part",
    """
    class Job:
        def __init__(self):
            self.net = Net()
            n = self.net
            chained = itertools.chain(n.a.parameters(), n.c.parameters(), [n.scale])
            self.optimizer = torch.optim.Adam(params=chained, lr=1e-2)
        def run(self): fit(self.net, self.optimizer)
    Job().run()
    """,
    "chained = itertools.chain(n.a.parameters(), n.c.parameters(), [n.scale], n.b.parameters())",
)  # fmt: skip
add(
    "GS205", "groups_without_a_part",
    """
    def optimizer_of(model):
        decay, rest = [], []
        for name, p in model.named_parameters():
            if name.startswith('b'): continue
            (decay if p.ndim > 1 else rest).append(p)
        return torch.optim.AdamW([
            {'params': decay, 'weight_decay': .1},
            {'params': rest},
        ], lr=1e-2)
    model = Net()
    fit(model, optimizer_of(model))
    """,
    '{"params": model.b.parameters()},',
)  # fmt: skip
add(
    "GS205", "groups_without_a_rate",
    """
    model = Net()
    groups = [{"params": one.parameters(), "lr": .1} for one in (model.a, model.c)]
    groups = [{"params": model.b.parameters(), "lr": .1}, {"params": [model.scale], "lr": .1}]
    fit(model, torch.optim.SGD(groups))
    """,
    None,
)  # fmt: skip
add(
    "GS205", "names_by_a_condition",
    """
    model = Net()
    held = [p for name, p in model.named_parameters() if not name.startswith("b")]
    fit(model, torch.optim.SGD(held, lr=.01))
    """,
    None,
)  # fmt: skip
add(
    "GS205", "unfrozen_later",
    """
    model = Net(); model.a.requires_grad_(False)
    held = (p for p in model.parameters()
            if p.requires_grad)
    optimizer = torch.optim.SGD(held, lr=.01)
    fit(model, optimizer, 0, 8)
    model.a.requires_grad_(True)
    fit(model, optimizer, 8)
    """,
    "held = model.parameters()",
)  # fmt: skip
add(
    "GS205", "changed_in_a_method",
    """
    def new_optimizer(model): return torch.optim.SGD(model.parameters(), lr=.01)
    def main():
        model = Net()
        optimizer = new_optimizer(model)
        # one more class
        model.widen()
        fit(model, optimizer)
    main()
    """,
    "optimizer = new_optimizer(model)",
)  # fmt: skip
add(
    "GS205", "changed_on_the_way",
    """
    def new_optimizer(model):
        return torch.optim.Adam(model.parameters(), lr=.01)
    def main():
        model = Net(); optimizer = None
        optimizer = new_optimizer(model)
        for part in range(3):
            if part == 1: model.widen()
            fit(model, optimizer, 8 * part, 8 * part + 8)
    main()
    """,
    None,
)  # fmt: skip
add(
    "GS205", "replaced_on_the_way",
    """
    def main():
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=.01)
        for part in range(3):
            if part == 1:
                model.widen()  # new task
            fit(model, optimizer, 8 * part, 8 * part + 8)
    main()
    """,
    "optimizer = torch.optim.Adam(model.parameters(), lr=.01)",
)  # fmt: skip
add(
    "GS205", "replaced_beside_a_scheduler",
    """
    def main():
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for part in range(3):
            if part == 1:
                model.widen()
            fit(model, optimizer, 8 * part, 8 * part + 8)
            scheduler.step()
    main()
    """,
    None,
)  # fmt: skip
add(
    "GS205", "best_of_all",
    """
    def main():
        model = Net(); best = copy.deepcopy(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=.01)
        for part in range(3):
            fit(model, optimizer, 8 * part, 8 * part + 8)
            model = copy.deepcopy( best )  # go on from there
    main()
    """,
    "model.load_state_dict(best.state_dict())  # go on from there",
)  # fmt: skip
add(
    "GS206", "stacked",
    """
    class Several:
        def __init__(self, n=3):
            self.nets = [Net() for _ in range(n)]
            self.params, self.buffers = stack_module_state(self.nets)
        def __call__(self, x):
            run = lambda p, b: functional_call(self.nets[0], (p, b), (x,))
            return vmap(run)(self.params, self.buffers)
        def parameters(self): return [p for net in self.nets for p in net.parameters()]
        def zero_grad(self):
            for p in self.params.values(): p.grad = None
    def main(several):
        optimizer = torch.optim.Adam(several.parameters(), lr=1e-2)
        for i in range(24):
            several.zero_grad()
            loss = (several(x[i]) - y[i]).square().mean(); loss.backward(); optimizer.step()
    main(Several())
    """,
    "optimizer = torch.optim.Adam(several.params.values(), lr=1e-2)",
)  # fmt: skip

START = (
    HEADER
    + """import argparse
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
judge = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(24)]
"""
)
add(
    "GS503", "step_between_two_passes",
    """
    one, two = (torch.optim.SGD(m.parameters(), lr=.01) for m in (net, judge))
    for x, y in data:
        fake = net(x)
        true = (judge(y) - judge(fake.detach())).mean(); false = judge(fake).mean()
        two.zero_grad(); true.backward(); two.step()
        one.zero_grad(); false.backward(); one.step()
    """,
    "true = (judge(y) - judge(fake.detach())).mean()",
    "false = judge(fake).mean()",
    around=START,
)  # fmt: skip
add(
    "GS302", "step_before_its_backward",
    """
    opt = torch.optim.SGD(net.parameters(), lr=.01)
    for x, y in data:
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        opt.step()   # first
        loss.backward()
    """,
    "loss.backward()",
    around=START,
)  # fmt: skip
add(
    "GS302", "step_behind_a_whole_loader",
    """
    opt = torch.optim.SGD(net.parameters(), lr=.01); loader = torch.utils.data.DataLoader(data)
    for epoch in range(5):
        for x, y in loader:
            loss = F.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
        opt.step()
    """,
    None,
    around=START,
)  # fmt: skip
add(
    "GS315", "sums_by_name",
    """
    opt = torch.optim.SGD(net.parameters(), lr=.01); sums = {"loss": 0.}
    for _ in range(4):
        for x, y in data:
            opt.zero_grad(); loss = F.mse_loss(net(x), y); loss.backward(); opt.step()
            sums['loss'] += loss  # mean later
    """,
    "sums['loss'] += loss.detach()  # mean later",
    around=START,
)  # fmt: skip
RATES = """
    {set}
    opt = torch.optim.SGD(net.parameters(), lr={get}, momentum=.9)
    for _ in range(3):
        for x, y in data:
            opt.zero_grad(); loss = F.mse_loss(net(x), y); loss.backward(); opt.step()
    """
for name, set_, get, added in (
    ("entry", "s = {'lr' : 3., 'n': 3}", "s['lr']", "s = {{'lr' : {}, 'n': 3}}"),
    (
        "option",
        "p = argparse.ArgumentParser(); p.add_argument('--my-lr', type=float, default=3.)\n"
        "    a = p.parse_args([])",
        "a.my_lr",
        "p = argparse.ArgumentParser(); p.add_argument('--my-lr', type=float, default={})",
    ),
    ("two_entries", "s, t = {'lr': 3.}, {'lr': 1.}", "s['lr']", None),
):
    add(
        "GS108", f"rate_of_an_{name}", RATES.format(set=set_, get=get),
        None if added is None else added.format("0.03"),
        around=START,
    )  # fmt: skip
add(
    "GS205", "same_module_in_two_optimizers", (EVERYDAY / "super_resolution_gan.py").read_text(),
    "self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=lr)",
    around="",
)  # fmt: skip
