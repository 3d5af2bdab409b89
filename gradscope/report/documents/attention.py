"""The logits of attention and outputs, and the routers of experts, as blocks of a document."""

from collections.abc import Iterator
from math import inf, isfinite

from gradscope.analysis.attention import LogitSeries, Router, logit_series, routers
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.report.document import (
    Block,
    Column,
    Inner,
    Location,
    Points,
    Share,
    Table,
    Value,
    more,
    section,
)
from gradscope.report.number_format import figure

_MOST = 12

_LOGITS = (
    Column(title="module", kind="name"),
    Column(title="logits"),
    Column(title="heads", kind="number", rank=2),
    Column(title="largest", kind="number"),
    Column(title="head", kind="number", rank=1),
    Column(title="log Z", kind="number"),
    Column(title="at first", kind="number", rank=1),
    Column(title="line", rank=3),
)

_ROUTERS = (
    Column(title="experts of", kind="name"),
    Column(title="chosen", kind="number"),
    Column(title="without gradient", kind="number"),
    Column(title="largest share", kind="number"),
    Column(title="smallest", kind="number", rank=1),
    Column(title="balance", kind="number", rank=1),
    Column(title="entropy of the router", kind="number", rank=2),
    Column(title="line", rank=3),
)


def attention_sections(report: Report) -> Iterator[Block]:
    """Yield the logits and routers of models with attention or experts."""
    found, root = logit_series(report.recording), report.target.root
    if any(one.kind == "attention" for one in found):
        worst = sorted(found, key=lambda one: _order(one.points[-1].top))
        rows = tuple(_logits(one, root) for one in worst[:_MOST])
        blocks: list[Inner] = [Table(columns=_LOGITS, rows=rows)]
        if hidden := more(len(worst) - _MOST, "with smaller logits"):
            blocks.append(Points(hidden))
        yield from section("Logits", blocks, note="largest magnitudes before a softmax")
    mixtures = routers(report.recording)
    if mixtures:
        rows = tuple(_router(one, root) for one in mixtures[:_MOST])
        blocks = [Table(columns=_ROUTERS, rows=rows)]
        if hidden := more(len(mixtures) - _MOST, "with experts"):
            blocks.append(Points(hidden))
        note = "choices of the last captured step; 1 is perfect balance"
        yield from section("Experts", blocks, note=note)


def _order(logit: float) -> float:
    """Return the key that puts non-finite logits first, then the largest."""
    return -logit if isfinite(logit) else -inf


def _logits(one: LogitSeries, root: str) -> tuple[Value, ...]:
    first, last = one.points[0], one.points[-1]
    is_output = one.kind == "output"
    heads = len(last.largest)
    start = first.log_normaliser if is_output else first.top
    return (
        one.module,
        one.kind,
        f"{heads}" if heads > 1 else "",
        last.top,
        "" if one.head is None else f"{one.head}",
        last.log_normaliser if is_output else "",
        f"{figure(start)}" if len(one.points) > 1 else "",
        Location(shown_site(one.site, root)),
    )


def _router(one: Router, root: str) -> tuple[Value, ...]:
    last = one.points[-1]
    idle = sum(share == 0 for share in last.shares)
    return (
        one.module,
        f"{one.chosen} of {one.experts}",
        f"{idle}",
        Share(max(last.shares)),
        Share(min(last.shares)),
        one.balance,
        last.entropy,
        Location(shown_site(one.site, root)),
    )
