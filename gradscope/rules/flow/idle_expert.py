"""GS117: experts that the router never chooses."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.attention import Router, routers
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleExpert(Rule):
    """Experts of a mixture that the router hardly ever chooses get no gradient.

    What it finds:
        A mixture of experts whose router sends nearly no row to some experts any more.

    Why it matters:
        An expert without rows gets no gradient. It never becomes better, so the router never
        chooses it: its parameters are wasted, and the others carry its load.

    How it is measured:
        In the fully captured steps, the rule counts the choices of the largest scores in every row,
        by `topk` or `max`, in a module with as many experts: a list of modules, or weights with a
        dimension of experts. Over the later half of these steps, an expert is idle if its share of
        the choices is below `share` times an equal share. An equal share of the choices must be at
        least `rows`, and the last captured step must be at least step `steps`.

    How to fix it:
        Add a loss that balances the load, a bias per expert as in DeepSeek-V3, or noise to the
        router's scores.

    When it may be wrong:
        Experts for data that the captured steps do not hold.

    Source:
        Shazeer et al. 2017 (arXiv 1701.06538), section 4, and Fedus et al. 2021, "Switch
        Transformers" (arXiv 2101.03961), on experts that are never chosen. Measured: a router with
        equal scores gives every one of 8 experts 80 to 120 % of an equal share of 2,000 choices.
    """

    code: ClassVar[str] = "GS117"
    name: ClassVar[str] = "idle-expert"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS203", "GS204")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="idle_experts"),)

    share: float = 0.05
    """Multiple of an equal share, 0 to 1. Chosen: a twentieth."""
    rows: float = 50.0
    """Minimum number of choices in an equal share. Chosen: by chance, an expert then has at most
    half of them once in 20,000 times.
    """
    steps: int = 50
    """Number of steps before the last captured one. Chosen: a router is unbalanced at the start."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        found = routers(context.recording)
        if not found:
            return "no router of a mixture of experts was measured in a captured step"
        if not any(map(self._is_judged, found)):
            return "the captured steps are too early, or hold too few rows"
        return None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose routers leave experts out."""
        by_line: dict[object, list[tuple[Router, list[int]]]] = {}
        for router in filter(self._is_judged, routers(context.recording)):
            shares = self._shares(router)
            limit = self.share / router.experts
            context.measured(
                self.code,
                "least_share",
                min(shares),
                limit,
                fires="below",
                subject=router.module,
                site=router.site,
                step=router.points[-1].step,
            )
            idle = [expert for expert, share in enumerate(shares) if share < limit]
            if idle:
                by_line.setdefault(router.site, []).append((router, idle))
        for members in by_line.values():
            yield self._finding(context, members)

    def _is_judged(self, router: Router) -> bool:
        points = router.points[len(router.points) // 2 :]
        choices = sum(point.rows for point in points) * router.chosen
        return points[-1].step >= self.steps and choices / router.experts >= self.rows

    def _shares(self, router: Router) -> tuple[float, ...]:
        return router.shares(len(router.points) // 2)

    def _finding(self, context: RuleContext, members: list[tuple[Router, list[int]]]) -> Finding:
        router, idle = max(members, key=lambda one: len(one[1]) / one[0].experts)
        names = ", ".join(map(str, idle[:_NAMED])) + (" and more" if len(idle) > _NAMED else "")
        where = f" of {router.module}" if router.module else ""
        many = f"{len(idle)} of {router.experts} experts{where}"
        return self.finding(
            context,
            message=(
                f"the router hardly chooses {many} ({names}): at most "
                f"{max(self._shares(router)[one] for one in idle):.2%} of the rows each"
            ),
            remedy="add a loss that balances the load of the experts, or noise to the router",
            site=router.site,
            parameters=[i for one, numbers in members for i in _parameters(context, one, numbers)],
            modules=tuple(one.module for one, _ in members),
            evidence={
                "idle_experts": len(idle),
                "experts": router.experts,
                "least_share": min(self._shares(router)),
                "limit": self.share / router.experts,
            },
            count=len(members),
            step=self._first_step(router, idle),
        )

    def _first_step(self, router: Router, idle: list[int]) -> int:
        """Return the captured step from which some experts are idle."""
        limit = self.share / router.experts
        busy = [
            position
            for position, point in enumerate(router.points)
            if any(point.shares[expert] >= limit for expert in idle)
        ]
        return router.points[min(max(busy, default=-1) + 1, len(router.points) - 1)].step


def _parameters(context: RuleContext, router: Router, idle: list[int]) -> Iterator[int]:
    """Yield the parameters of some experts, where each has its own."""
    for record in context.recording.parameters:
        if any(record.name.startswith(f"{router.list_path}.{expert}.") for expert in idle):
            yield record.index
