"""Models that copy results or make layers in their forward, formatted in many ways."""

from tests.fixes.odd_program import CLASSES, HEADER, Program, adding_to

PROGRAMS: list[Program] = []
add = adding_to(PROGRAMS)


def model(rule, name, start, forward, *added, arguments="", around=HEADER + CLASSES, **further):
    """Add a model with a body `a` and a head `f`."""
    body = "".join(f"        {line}\n" for line in start)
    steps = "".join(f"        {line}\n" for line in forward)
    text = (
        "class Net(nn.Module):\n"
        f"    def __init__(self{arguments}):\n"
        "        super().__init__()\n"
        f"{body}"
        "        self.f = nn.Linear(4, 3)\n"
        "    def forward(self, x):\n"
        f"{steps}"
        "def build_model(): torch.manual_seed(0); return Net()\n"
    )
    add(rule, name, text, *added, around=around, **further)


BODY = ["self.a = nn.Linear(4, 4)"]
CHECKPOINT = (
    HEADER + "from torch.utils.checkpoint import checkpoint as recompute\n"
    "import torch.utils.checkpoint as C\n" + CLASSES
)


def cut(name, forward, *added, start=BODY, **further):
    model("GS201", name, start, forward, *added, **further)


cut(
    "reentrant",
    ["h = recompute(self.a, x,", "    use_reentrant = True)  # saves memory", "return self.f(h)"],
    "use_reentrant = False)  # saves memory",
    around=CHECKPOINT,
)  # fmt: skip
cut(
    "reentrant_by_module", ["return self.f(C.checkpoint(self.a,x,use_reentrant=True).relu())"],
    "return self.f(C.checkpoint(self.a,x,use_reentrant=False).relu())",
    around=CHECKPOINT,
)  # fmt: skip
cut(
    "reentrant_by_variable",
    ["again = not self.training or x.requires_grad is False",
     "return self.f(recompute(self.a, x, use_reentrant=again))"],
    None,
    around=CHECKPOINT,
)  # fmt: skip
cut(
    "parameter", ["w = nn.Parameter( self.a.weight.tanh() ); return self.f(x @ w)"],
    "w = self.a.weight.tanh(); return self.f(x @ w)",
)  # fmt: skip
cut(
    "parameters_of_pairs",
    ["pairs = [(self.a.weight.tanh(), self.a.bias * 2)]",
     "(w, b), = [(nn.Parameter(w), nn.Parameter(b)) for w, b in pairs]",
     "return self.f(x @ w + b)"],
    "(w, b), = [(w, b) for w, b in pairs]",
)  # fmt: skip
cut(
    "parameter_beside_a_new_one",
    ["w, b = nn.Parameter(self.a.weight.tanh()), nn.Parameter(torch.zeros(4))",
     "return self.f(x @ w + b)"],
    None,
)  # fmt: skip
cut(
    "numbers_of_a_tensor", ["return self.f(torch.tensor(self.a(x).tanh().tolist()))  # plain"],
    "return self.f(self.a(x).tanh())  # plain",
)  # fmt: skip
cut(
    "list_of_numbers", ["n = self.a(x).mean(0).tolist()", "return self.f(x * n[0])"],
    None,
)  # fmt: skip
cut(
    "floats", ["s = torch.tensor([float(r.sum()) for r in self.a(x)])",
               "return self.f(x) * s[:, None]"],
    "s = torch.stack([r.sum().squeeze() for r in self.a(x)])",
)  # fmt: skip
cut(
    "items", ["s = torch.tensor([self.a(x).mean().item(), self.a(x * 2).mean().item()])",
              "return self.f(x) * s.sum()"],
    "s = torch.stack([self.a(x).mean().squeeze(), self.a(x * 2).mean().squeeze()])",
)  # fmt: skip
cut(
    "item_beside_a_number", ["s = torch.tensor([self.a(x).mean().item(), 1.])",
                             "return self.f(x) * s.sum()"],
    None,
)  # fmt: skip
cut(
    "appended",
    ["rows = []", "for r in self.a(x): rows.append(r.sum())",
     "s = torch.tensor(rows, requires_grad=True)", "return self.f(x) * s[:, None]"],
    "s = torch.stack(rows)",
)  # fmt: skip
cut(
    "copy_of_a_result", ["h = self.a(x) * 2", "h = torch.tensor(h)", "return self.f(h)"],
    "h = h",
)  # fmt: skip
cut(
    "copy_with_a_type", ["return self.f(torch.tensor(self.a(x) * 2, dtype=torch.float32))"],
    None,
)  # fmt: skip


def recreated(name, start, forward, *added, **further):
    model("GS207", name, start, forward, *added, **further)


recreated(
    "layer", BODY, ["return self.f(nn.Linear(4, 4)(self.a(x)))"],
    "self.linear = nn.Linear(4, 4)", "return self.f(self.linear(self.a(x)))",
)  # fmt: skip
recreated(
    "size_of_an_argument", ["self.a = nn.Linear(4, width)"],
    ["h = self.a(x)", "h = nn.Linear(h.shape[-1], 4)(h)  # back", "return self.f(h)"],
    "self.linear = nn.Linear(width, 4)", "h = self.linear(h)  # back",
    arguments=", width=6",
)  # fmt: skip
recreated(
    "size_that_nothing_names", BODY,
    ["h = torch.cat([x, x * x], 1); m = nn.Linear(h.size(1), 4); return self.f(m(h))"],
    "self.m = nn.Linear(8, 4)",
    "h = torch.cat([x, x * x], 1); m = self.m; return self.f(m(h))",
)  # fmt: skip
recreated(
    "taken_name", ["self.linear = nn.Linear(4, 4)"],
    ["return self.f(nn.Linear(4, 4)(self.linear(x)))"],
    "self.linear2 = nn.Linear(4, 4)", "return self.f(self.linear2(self.linear(x)))",
)  # fmt: skip
recreated(
    "under_a_condition", ["self.a = nn.Linear(4, 4)", "self.size = 4"],
    ["if self.size == 4:", "    x = nn.Sequential(nn.Linear(4, 4), nn.Tanh())(x)",
     "return self.f(self.a(x))"],
    "if self.size == 4:",
    "self.sequential = nn.Sequential(nn.Linear(4, 4), nn.Tanh())",
    "x = self.sequential(x)",
)  # fmt: skip
recreated(
    "under_a_condition_of_the_batch", BODY,
    ["if len(x) == 8:", "    x = nn.Linear(4, 4)(x)", "return self.f(self.a(x))"],
    None,
)  # fmt: skip
recreated(
    "in_a_loop", BODY,
    ["for _ in range(2):", "    x = nn.Linear(4, 4)(x)", "return self.f(self.a(x))"],
    None,
)  # fmt: skip
recreated(
    "parameter", BODY, ["w = nn.Parameter(torch.ones(4))", "return self.f(self.a(x) * w)"],
    "self.w = nn.Parameter(torch.ones(4))", "w = self.w",
)  # fmt: skip


def in_place(name, forward, *added, start=BODY):
    model("GS503", name, start, forward, *added)


in_place(
    "result_of_a_write", ["g = torch.sigmoid(self.a(x))", "h = g.mul_(x);  return self.f(h)"],
    "h = g.mul(x);  return self.f(h)",
)  # fmt: skip
in_place(
    "returned_write", ["g = self.f(self.a(x)).sigmoid()", "return g.mul_(x[:, :3])"],
    "return g.mul(x[:, :3])",
)  # fmt: skip
in_place(
    "written_and_read", ["g = torch.sigmoid(self.a(x))", "h = g.mul_(x)", "return self.f(h + g)"],
    None,
)  # fmt: skip
in_place(
    "clamped_parameter", ["s = self.scale.clamp_(0.1, 10.)", "return self.f(self.a(x)) * s"],
    "s = self.scale.clamp(0.1, 10.)",
    start=[*BODY, "self.scale = nn.Parameter(torch.ones(()))"],
)  # fmt: skip
in_place(
    "clamped_in_a_statement",
    ["self.scale.clamp_(0.1, 10.)", "return self.f(self.a(x)) * self.scale"],
    None,
    start=[*BODY, "self.scale = nn.Parameter(torch.ones(()))"],
)  # fmt: skip
