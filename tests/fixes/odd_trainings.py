"""Training scripts with a mistake, formatted in many ways, and the edit a reviewer would accept."""

from tests.fixes.odd_program import HEADER, Program, adding_trainings_to

PROGRAMS: list[Program] = []

START = (
    HEADER
    + """torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=.01)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(24)]
"""
)


add = adding_trainings_to(PROGRAMS, START)

add(
    "GS303", "number_in_the_condition",
    """
    for i, (x, y) in enumerate(data):
        F.mse_loss(net(x), y).backward()
        if (i + 1) % 4 == 0:
            opt.step(); opt.zero_grad()
    """,
    "(F.mse_loss(net(x), y) / 4).backward()",
)  # fmt: skip
add(
    "GS303", "name_in_the_condition",
    """
    WINDOW = 3
    for i, (x, y) in enumerate(data, 1):
        loss = F.mse_loss(net(x), y); loss.backward()  # adds up
        if not i % WINDOW: opt.step(); opt.zero_grad()
    """,
    "loss = F.mse_loss(net(x), y); (loss / WINDOW).backward()  # adds up",
)  # fmt: skip
add(
    "GS303", "argument_of_the_script",
    """
    import argparse
    p = argparse.ArgumentParser(); p.add_argument("--accum", type=int, default=4)
    args = p.parse_args([])
    for i, (x, y) in enumerate(data):
        loss = F.mse_loss(net(x), y)
        loss.backward()
        if (i + 1) % args.accum == 0 or i + 1 == len(data):
            opt.step()
            opt.zero_grad()
    """,
    "(loss / args.accum).backward()",
)  # fmt: skip
add(
    "GS303", "inner_loop_over_a_range",
    """
    def train(accumulate=2):
        batches = iter(data)
        for _ in range(12):
            opt.zero_grad()
            for _ in range(accumulate):
                x, y = next(batches)
                (F.mse_loss(net(x), y) + 0).backward()
            opt.step()
    train()
    """,
    "((F.mse_loss(net(x), y) + 0) / accumulate).backward()",
)  # fmt: skip
add(
    "GS303", "parts_of_a_batch",
    """
    for x, y in data:
        opt.zero_grad()
        parts = list(zip(x.chunk(2), y.chunk(2)))
        for a, b in parts:
            loss = F.mse_loss(
                net(a),
                b,
            )
            loss.backward()
        opt.step()
    """,
    "(loss / len(parts)).backward()",
)  # fmt: skip
add(
    "GS303", "chunks_on_the_line",
    """
    for x, _ in data:
        opt.zero_grad()
        for a in x.chunk(4): net(a).pow(2).mean().backward()
        opt.step()
    """,
    "for a in x.chunk(4): (net(a).pow(2).mean() / 4).backward()",
)  # fmt: skip
add(
    "GS303", "scaler",
    """
    scaler = torch.amp.GradScaler("cpu", init_scale=2.**4)
    for i, (x, y) in enumerate(data):
        loss = F.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        if i % 4 != 3: continue
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    """,
    "scaler.scale(loss / 4).backward()",
)  # fmt: skip
add(
    "GS303", "counter",
    """
    class Trainer:
        every = 4
        def fit(self):
            count = 0
            for x, y in data:
                loss = F.mse_loss(net(x), y)
                loss.backward()
                count += 1
                if count == 4:
                    opt.step(); opt.zero_grad(); count = 0
    Trainer().fit()
    """,
    "(loss / 4).backward()",
)  # fmt: skip
add(
    "GS303", "number_of_another_value",
    """
    for i, (x, y) in enumerate(data):
        for _ in range(2):
            loss = F.mse_loss(net(x), y)
            loss.backward()
        if i % 2 == 1:
            opt.step(); opt.zero_grad()
    """,
    None,
)  # fmt: skip
add(
    "GS303", "parts_by_their_size",
    """
    for x, _ in data:
        opt.zero_grad()
        for a in x.split(2):
            net(a).pow(2).mean().backward()
        opt.step()
    """,
    None,
)  # fmt: skip
add(
    "GS303", "generator_of_parts",
    """
    def parts(x):
        yield x[:4]; yield x[4:]
    for x, _ in data:
        opt.zero_grad()
        for a in parts(x):
            net(a).pow(2).mean().backward()
        opt.step()
    """,
    None,
)  # fmt: skip

MODES = START.replace("nn.Tanh()", "nn.BatchNorm1d(8), nn.Dropout(.1)")


def in_eval_mode(name, text, *added):
    add("GS312", name, text, *added, around=MODES)


in_eval_mode(
    "evaluation_at_the_end_of_an_epoch",
    """
    for epoch in range(4):

        # one epoch
        for x, y in data:
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
        net.eval()
    """,
    "net.train()",
)
in_eval_mode(
    "evaluation_in_the_loop",
    """
    def score(model):
        model.eval()
    for x, y in data:
        opt.zero_grad(); F.mse_loss(net(x), y).backward(); opt.step()
        score(net)
    """,
    "net.train()",
)
in_eval_mode(
    "one_line",
    """
    net.eval()
    for x, y in data: opt.zero_grad(); F.mse_loss(net(x), y).backward(); opt.step()
    """,
    "net.train()",
)
in_eval_mode(
    "method",
    """
    class Trainer:
        def __init__(self): self.model = net
        def step(self, x, y):
            \"\"\"Train on a batch.\"\"\"
            opt.zero_grad()
            F.mse_loss(self.model(x), y).backward()
            opt.step()
    trainer = Trainer(); net.eval()
    for x, y in data: trainer.step(x, y)
    """,
    "self.model.train()",
)
in_eval_mode(
    "function",
    """
    def train(net, x, y):
        \"\"\"Train on a batch.\"\"\"
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    net.eval()
    for x, y in data: train(net, x, y)
    """,
    "net.train()",
)

TWO = START.replace(
    "net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))",
    """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x): return self.head(self.body(x).tanh())
net = Net()""",
)
CLIPPED = """
for x, y in data:
    opt.zero_grad()
    (9 * F.mse_loss(net(x), y)).backward()
    {}
    opt.step()
"""


def partial(name, clip, *added, before="", around=TWO):
    add("GS404", name, before + CLIPPED.format(clip), *added, around=around)


partial(
    "part", "torch.nn.utils.clip_grad_norm_(net.head.parameters(), .5)",
    "torch.nn.utils.clip_grad_norm_(net.parameters(), .5)",
)  # fmt: skip
partial(
    "keyword_and_list",
    "nn.utils.clip_grad_norm_(max_norm=.5, parameters=list(net.head.parameters()))",
    "nn.utils.clip_grad_norm_(max_norm=.5, parameters=net.parameters())",
)
partial(
    "alias", "clip(\n        net.head.parameters(),  # the head\n        .5,\n    )",
    "net.parameters(),  # the head",
    before="from torch.nn.utils import clip_grad_norm_ as clip\n",
)  # fmt: skip
partial(
    "sum_of_lists", "nn.utils.clip_grad_norm_(net.head.parameters(), .5)",
    "nn.utils.clip_grad_norm_(list(net.body.parameters()) + list(net.head.parameters()), .5)",
    before="opt = torch.optim.SGD("
    "list(net.body.parameters()) + list(net.head.parameters()), .01)\n",
    around=TWO.replace("opt = torch.optim.SGD(net.parameters(), lr=.01)\n", ""),
)  # fmt: skip
partial(
    "exhausted", "nn.utils.clip_grad_norm_(params, .5)", "params = list(net.parameters())",
    before="params = net.parameters()\nprint(sum(p.numel() for p in params))\n",
)  # fmt: skip
partial(
    "exhausted_generator", "nn.utils.clip_grad_norm_(params, .5)",
    "params = list(p for p in net.parameters() if p.requires_grad)",
    before="params = (p for p in net.parameters() if p.requires_grad)\nprint(len(list(params)))\n",
)  # fmt: skip
partial(
    "two_clips",
    "nn.utils.clip_grad_norm_(net.head.weight, .5); nn.utils.clip_grad_norm_(net.head.bias, .5)",
    None,
)
partial(
    "other_name",
    "clip_all(net.head)",
    None,
    before="def clip_all(m):\n    nn.utils.clip_grad_norm_(m.parameters(), .5)\n",
)
partial(
    "groups", "nn.utils.clip_grad_norm_(net.head.parameters(), .5)", None,
    before="opt = torch.optim.SGD([{'params': net.body.parameters()}, "
    "{'params': net.head.parameters()}], lr=.01)\n",
    around=TWO.replace("opt = torch.optim.SGD(net.parameters(), lr=.01)\n", ""),
)  # fmt: skip


def inside(name, text, *added):
    add("GS409", name, text, *added)


inside(
    "condition",
    """
    for i, (x, y) in enumerate(data):
        (F.mse_loss(net(x), y) / 4).backward()

        # not too large
        nn.utils.clip_grad_norm_(net.parameters(), .5)
        if (i + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
    """,
    "# not too large",
    "nn.utils.clip_grad_norm_(net.parameters(), .5)",
)
inside(
    "inner_loop",
    """
    for x, y in data:
        opt.zero_grad()
        for k in range(2):
            (F.mse_loss(net(x[k::2]), y[k::2]) / 2).backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), .5)
        opt.step()
    """,
    "norm = nn.utils.clip_grad_norm_(net.parameters(), .5)",
)
inside(
    "limit_of_the_inner_loop",
    """
    for x, y in data:
        opt.zero_grad()
        for limit in (.01, .02):
            (F.mse_loss(net(x), y) / 2).backward()
            nn.utils.clip_grad_norm_(net.parameters(), limit)
        opt.step()
    """,
    None,
)
inside(
    "norm_used_in_the_inner_loop",
    """
    for x, y in data:
        opt.zero_grad()
        for k in range(2):
            (F.mse_loss(net(x[k::2]), y[k::2]) / 2).backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), .5)
            print(float(norm))
        opt.step()
    """,
    None,
)
inside(
    "one_line",
    """
    for i, (x, y) in enumerate(data):
        (F.mse_loss(net(x), y) / 4).backward(); nn.utils.clip_grad_norm_(net.parameters(), .5)
        if (i + 1) % 4 == 0: opt.step(); opt.zero_grad()
    """,
    None,
)
inside(
    "step_in_a_function",
    """
    def update():
        opt.step()
        opt.zero_grad()
    for i, (x, y) in enumerate(data):
        (F.mse_loss(net(x), y) / 4).backward()
        nn.utils.clip_grad_norm_(net.parameters(), .5)
        if (i + 1) % 4 == 0: update()
    """,
    None,
)
