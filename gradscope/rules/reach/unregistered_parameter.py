"""GS207: tensors that the model learns from nobody: `parameters()` does not give them."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import MOST_NAMED
from gradscope.analysis.reach import (
    Reach,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.parameters import LeafRecord, ReplacementRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_FUNCTIONS = frozenset({"function", "method", "partial"})
_REMEDIES = {
    "dict": "store them in an `nn.ModuleDict` or `nn.ParameterDict`",
    **dict.fromkeys(_FUNCTIONS, "assign the modules that it uses to attributes of the model, too"),
}
"""What to do with the contents of other containers."""
_CONTAINERS = frozenset({"deque", "dict", "list", "set", "tuple"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisteredParameter(Rule):
    """The model uses tensors that require grad but are not in its `parameters()`.

    What it finds:
        Leaves of the graph that require grad and belong to the model without being registered:
        modules in a plain list, tuple or dictionary, or in the closure or the arguments of a
        function that the model stores; a tensor stored as a plain attribute or as a
        buffer; the result of a computation on a parameter, as in `self.scale = nn.Parameter(…) *
        0.02` or `nn.Parameter(…).cuda()`; and parameters that the forward creates in each call. In
        a script also constants that it makes before its loop and uses in the loss, such as learned
        weights of the loss's terms, `torch.zeros(2, requires_grad=True)`, if no optimizer holds
        them.

    Why it matters:
        They get gradients, but no optimizer over `model.parameters()` ever updates them. They are
        missing from `state_dict()`, and `to()`, `train()` and `zero_grad()` skip them.

    How it is measured:
        The rule searches the attributes of the model's modules, including nested containers, for
        the leaves of the first graph that are no parameters, and for results computed from them
        before the forward. There is no threshold. It skips leaves that the optimizer holds, leaves
        outside the model, such as those of a loss module, and tensors that the forward creates to
        differentiate with respect to them. Constants of a script are those of `zeros`, `ones`,
        `full`, `tensor` and `nn.Parameter` which no module uses and whose values and gradients the
        script neither writes nor reads. Of a script's module, tensors are found that `__init__`
        alone stores as an attribute or puts into a list, tuple or dictionary.

    How to fix it:
        Store modules in `nn.ModuleList` or `nn.ModuleDict`, tensors in `nn.Parameter` or
        `nn.ParameterList`: compute first and wrap last. Create layers in `__init__`, not in the
        forward.

    Fix safety:
        Safe. A list of modules becomes an `nn.ModuleList`, a dictionary an `nn.ModuleDict`, tensors
        an `nn.ParameterList` or `nn.ParameterDict`, and a tensor an `nn.Parameter`. A layer that
        the forward creates is created in `__init__`: sizes that only the forward knows become the
        arguments of `__init__` with their values, or numbers. No edit in a loop. Checkpoints then
        contain these tensors too.

    When it may be wrong:
        A list may hide a module from `parameters()` on purpose, such as a network that only
        measures a perceptual loss. Freeze such a module; in eval mode it is a note already.

    Source:
        torch documentation, `nn.ModuleList` and `nn.Parameter`.
        pytorch issues 1053, 715, 59925 and 72580.
    """

    code: ClassVar[str] = "GS207"
    name: ClassVar[str] = "unregistered-parameter"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS502",)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="safe", module="fixes.registration", ends=("GS317",)
    )
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="elements"),)
    needs: ClassVar[Needs] = (probe_ran("leaves"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every attribute, and every line that makes parameters."""
        groups: dict[object, list[LeafRecord]] = {}
        for leaf in context.recording.evidence_of(LeafRecord):
            # A tensor that a module takes as its input may be data, such as an image that is
            # optimised.
            if leaf.origin == "script" and _is_given_to_module(context, leaf):
                continue
            if leaf.origin != "input" and not _is_cut_off(context, leaf):
                site = leaf_site(context, leaf)
                # All leaves of one attribute are one mistake, and so are those that one line
                # stores.
                key = (leaf.owner, leaf.attribute) if leaf.attribute else site
                groups.setdefault(leaf.site or key, []).append(leaf)
        for leaves in groups.values():
            yield self._finding(context, leaves)

    def _finding(self, context: RuleContext, leaves: list[LeafRecord]) -> Finding:
        first = leaves[0]
        elements = sum(leaf.numel for leaf in leaves)
        trainable = sum(p.numel for p in context.recording.parameters if p.requires_grad)
        owner = None if first.owner is None else context.recording.modules[first.owner].path
        use, site = _first_use(context, first.node), leaf_site(context, first)
        renamed = _replacement(context, first)
        return self.finding(
            context,
            message=_message(leaves),
            remedy=_remedy(first),
            site=site,
            related=(
                context.related(use, "used here") if use != site else None,
                context.related(renamed, "each module registered here replaces the one before it"),
            ),
            severity=_severity(context, first),
            names=[leaf.name for leaf in leaves if leaf.name],
            modules=() if owner is None else (owner,),
            evidence={
                "tensors": len(leaves),
                "elements": elements,
                "trainable_elements_of_the_model": trainable,
                "container": first.container,
            },
            count=len(leaves),
        )


def _is_cut_off(context: RuleContext, leaf: LeafRecord) -> bool:
    """Return whether the forward made a parameter from values computed from others.

    The lost gradient of those others is reported as a cut.
    """
    users = {user.index for user in context.consumers(leaf.node)}
    stops = context.shared(Reach).stops
    return leaf.origin == "forward" and any(users <= stop.joins for stop in stops)


def _is_given_to_module(context: RuleContext, leaf: LeafRecord) -> bool:
    """Return whether a module uses a leaf, as it uses its input."""
    return any(user.module_call is not None for user in context.consumers(leaf.node))


def _replacement(context: RuleContext, leaf: LeafRecord) -> Site | None:
    """Return the line that registers the modules of a container under one name, one by one."""
    modules = context.recording.modules
    for record in context.recording.evidence_of(ReplacementRecord):
        if modules[record.module].parent == leaf.owner and leaf.container in _CONTAINERS:
            return context.site(record.site)
    return None


def leaf_site(context: RuleContext, leaf: LeafRecord) -> Site | None:
    """Return the line that stores a leaf, or that of its first use."""
    return context.site(leaf.site) if leaf.site is not None else _first_use(context, leaf.node)


def _first_use(context: RuleContext, node: int) -> Site | None:
    """Return the first line of the forward that uses a leaf, or a value computed from it."""
    waiting, seen = [node], {node}
    while waiting:
        users = {user.index: user for position in waiting for user in context.consumers(position)}
        fresh = [users[index] for index in sorted(users.keys() - seen)]
        known = next((user.site for user in fresh if user.site is not None), None)
        if known is not None:
            return context.site(known)
        seen.update(user.index for user in fresh)
        waiting = [user.index for user in fresh]
    return None


def _severity(context: RuleContext, leaf: LeafRecord) -> Severity:
    if leaf.set_aside:
        return "note"
    return (
        "warning" if leaf.origin == "late" and not context.recording.target.optimizer else "error"
    )


# An optimizer that is made after the first forward would hold them.
def _message(leaves: list[LeafRecord]) -> str:
    first, number = leaves[0], len(leaves)
    tensors = counted(number, "tensor")
    if first.origin == "forward":
        what = _listed(leaves) if first.name else tensors
        return f"the forward recreates {what} each time: what the optimizer learns is lost"
    if first.origin == "late":
        late = "an earlier optimizer does not hold them"
        return f"{_listed(leaves)}: made in the first forward, {late}"
    if first.origin == "script":
        verb, them = ("requires", "it") if number == 1 else ("require", "them")
        return (
            f"{_listed(leaves)} {verb} grad, but no optimizer holds {them}: no step changes {them}"
        )
    if first.origin == "computed":
        return _message_of_computed(leaves)
    if first.container == "buffer":
        return f"{first.name} requires grad but is a buffer: parameters() does not include it"
    if first.container in ("Tensor", "Parameter"):
        return f"{first.name} requires grad but is a plain tensor: parameters() does not include it"
    if first.container in _FUNCTIONS:
        return (
            f"{tensors} that require grad belong to the {first.container} `{first.attribute}` "
            "alone: parameters() does not include them"
        )
    holder = f"the plain {first.container} `{first.attribute}`"
    return f"{tensors} that require grad are stored in {holder}: parameters() does not include them"


def _message_of_computed(leaves: list[LeafRecord]) -> str:
    if len(leaves) > 1:
        what, them = "are computed once from tensors", "them"
    else:
        what, them = "is computed once from a tensor", "it"
    return (
        f"{_listed(leaves)} {what} that the model does not store: parameters() does not include "
        f"{them}, and no optimizer updates {them}"
    )


def _listed(leaves: list[LeafRecord]) -> str:
    names = [leaf.name for leaf in leaves]
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{rest}"


def _remedy(leaf: LeafRecord) -> str:
    if leaf.origin == "script":
        return f"give it to the optimizer: `[*model.parameters(), {leaf.name}]`"
    if leaf.origin in ("forward", "late"):
        return "create it once in `__init__` and assign it to an attribute of the module"
    if leaf.origin == "computed" and leaf.container in ("Tensor", "buffer", "Parameter"):
        return f"compute first, wrap last: `self.{leaf.attribute} = nn.Parameter(…)`"
    if leaf.origin == "computed":
        kind = "nn.ParameterDict" if leaf.container == "dict" else "nn.ParameterList"
        return f"compute first, wrap last with `nn.Parameter(…)`, and store them in an `{kind}`"
    if leaf.container in ("list", "tuple", "set"):
        # `layers.0.weight` is a parameter of a module in the list, `weights.0` is one of the list.
        kind = "nn.ModuleList" if leaf.name.count(".") > 1 else "nn.ParameterList"
        return f"store them in an `{kind}`"
    if leaf.container in ("Tensor", "buffer"):
        return f"wrap it: `self.{leaf.attribute} = nn.Parameter(…)`"
    return _REMEDIES.get(
        leaf.container, "wrap their container in an `nn.Module` and assign it to the module"
    )
