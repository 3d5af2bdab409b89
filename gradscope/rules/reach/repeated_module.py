"""GS219: one module object that stands several times in a list."""

import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import Subtrees
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.source_text import statement_texts
from gradscope.rules.rule import Rule

_MULTIPLIED = re.compile(r"\]\s*\*\s*[\w(]|[\w)]\s*\*\s*\[|\b(repeat|fromkeys)\(")
"""A list that is multiplied, `itertools.repeat`, or `dict.fromkeys`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedModule(Rule):
    """A list multiplication puts one layer several times into a model.

    What it finds:
        A module with parameters that has several consecutive indices of one container, as in
        `nn.Sequential(*[Block()] * 4)`, or several keys, as in `dict.fromkeys(names, Head())`.

    Why it matters:
        The entries are one object: all layers share their weights, and the model has a fraction of
        the parameters that its depth suggests. Nothing fails, and the loss falls, but not as far.

    How it is measured:
        By the names under which the model holds each module, and by the statement that made it. A
        module counts if it has two or more consecutive numbers or keys in one container, and if the
        statement multiplies a list, or calls `itertools.repeat` or `dict.fromkeys`. Layers that a
        loop adds or calls again are shared on purpose. Nothing is measured in numbers, so there is
        no threshold.

    How to fix it:
        Make a new module for each entry: `nn.Sequential(*[Block() for _ in range(4)])`.

    When it may be wrong:
        If the layers are meant to share their weights, as in ALBERT.

    Source:
        discuss.pytorch.org threads on `nn.ModuleList([layer] * n)`. torch documentation,
        `nn.Transformer`, which makes its layers by `copy.deepcopy` for this reason.
    """

    code: ClassVar[str] = "GS219"
    name: ClassVar[str] = "repeated-module"
    level: ClassVar[Severity] = "warning"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every module that a list multiplication repeats."""
        subtrees = Subtrees(context.recording)
        for module in context.recording.modules:
            parameters = subtrees.trainable.get(module.index, frozenset())
            site = context.site(module.site)
            times = _times(module)
            if times < 2 or not parameters or site is None or not _is_multiplied(context, site):
                continue
            container = module.path.rpartition(".")[0]
            yield self.finding(
                context,
                message=(
                    f"{times} entries of {container or 'the model'} are one {module.class_name}: "
                    f"they share {counted(len(parameters), 'parameter')}"
                ),
                remedy=f"make a new {module.class_name} for each entry, in a list comprehension",
                site=site,
                parameters=sorted(parameters),
                modules=(module.path,),
                evidence={"entries": times, "parameters": len(parameters)},
                count=times,
            )


def _times(module: ModuleRecord) -> int:
    """Return how many consecutive numbers, or how many keys, a module has in its container."""
    container, _, number = module.path.rpartition(".")
    if not number.isdigit():
        return 1 + sum(alias.rpartition(".")[0] == container for alias in module.aliases)
    names = {module.path, *module.aliases}
    last = int(number)
    # An entry of the model itself has no name before its number.
    while f"{container}.{last + 1}".removeprefix(".") in names:
        last += 1
    return last - int(number) + 1


def _is_multiplied(context: RuleContext, site: Site) -> bool:
    texts = statement_texts(context, site)
    return any(_MULTIPLIED.search(text) for text in texts)
