"""The report on clipping as a document."""

from collections.abc import Iterator, Sequence

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.sections import Contribution
from gradscope.analysis.clipping.sections import Section as Clip
from gradscope.analysis.columns import Columns
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted, literal
from gradscope.report.document import (
    Column,
    Document,
    Fact,
    Facts,
    Inner,
    Line,
    Mark,
    Note,
    Points,
    Section,
    Share,
    Strip,
    Strips,
    Table,
    Value,
    Word,
    section,
)
from gradscope.report.documents.clipping_phrasing import (
    METHODS,
    advice_text,
    cut_text,
    direction_text,
    exchange_text,
    headline,
    measured_text,
    norm_name,
    rate_text,
    remarks,
    rest_text,
    spread_phrase,
)
from gradscope.report.documents.inspection import header_of
from gradscope.report.finding_phrasing import found_text, next_of_report
from gradscope.report.findings import findings_of
from gradscope.report.number_format import figure
from gradscope.report.strips import LABEL, Scale, layout_for

_MODULES_SHOWN = 8


def clipping_document(
    report: Report, clipping: Clipping, view: ViewOptions, width: int
) -> Document:
    """Return the clips, their frequency and effect, and the effect of other limits and methods."""
    trial = clipping.trial
    measured = "" if trial is None else measured_text(trial, clipping.sections[0])
    return Document(
        program="gradscope clip-report",
        subject=report.target.name,
        header=header_of(report, *([Fact("measured", measured)] if measured else [])),
        blocks=(
            *findings_of(report),
            *(block for one in clipping.sections for block in _sections(one, report, view, width)),
        ),
        closing=(Note(_closing(report, clipping)),),
        next_command=next_of_report(report),
    )


def _sections(clip: Clip, report: Report, view: ViewOptions, width: int) -> Iterator[Section]:
    yield _clip(clip, report)
    yield from _norms(clip, width)
    yield from section(
        "Limits", list(_limits(clip)), note="share of these steps that each limit would clip"
    )
    yield from _contributions(clip, view)
    if clip.methods:
        yield from section("Methods", [_methods(clip)], note="compared on the same gradients")


def _clip(clip: Clip, report: Report) -> Section:
    """Return the clip, its frequency and its effect."""
    note: Line = shown_site(clip.site, report.target.root)
    if clip.is_advised:
        note = "the recommended limit"
    facts = [
        Fact(name, line)
        for name, line in (
            ("cut", cut_text(clip) if clip.method else ""),
            ("direction", direction_text(clip)),
            ("rate", rate_text(clip)),
        )
        if line
    ]
    facts += [
        Fact("ok", one.text, "good") if one.is_right else Fact("not", one.text, "error")
        for one in clip.checks
    ]
    reported = [Word(text, "notable") for text in (headline(clip), *remarks(clip)) if text]
    is_clipped = clip.method is not None or clip.is_advised
    return Section(
        title=clip.text if is_clipped else "Clip",
        note=note if is_clipped else ("nothing clips the gradients of ", Word(clip.text, "code")),
        blocks=(
            *([Facts(tuple(facts))] if facts else []),
            *([Points(tuple(reported))] if reported else []),
        ),
    )


def _norms(clip: Clip, width: int) -> Iterator[Section]:
    """Yield how the norms before clipping spread, and how they go over time."""
    norms = clip.norms
    if norms is None:
        return
    parts = list(spread_phrase(norms))
    blocks: list[Inner] = [Points((figure(norms.least),))]
    if norms.count > 1:
        # A narrow page omits the least useful quantiles.
        spread = Table(
            columns=tuple(
                Column(title=name, kind="number", rank=int(name in ("25 %", "75 %", "95 %")))
                for name, _ in parts
            ),
            rows=(tuple(value for _, value in parts),),
        )
        blocks = [spread, _histogram(clip)]
    # Of two, the quantiles say as much.
    if len(clip.points) > 2:
        blocks.append(_over_time(clip, width))
    of = f"before clipping, of {counted(norms.count, 'step')}"
    yield from section(norm_name(clip).capitalize(), blocks, note=of)


def _histogram(clip: Clip) -> Table:
    """Return the number of norms in each bin, and the limit between the bins."""
    most = max((one.count for one in clip.bins), default=0)
    limit = clip.limit if clip.method in ("norm", "per-tensor") else None
    rows: list[tuple[Value, ...]] = []
    for one in clip.bins:
        ends = "0" if not one.high else f"{literal(one.low)}…{literal(one.high)}"
        is_here = limit is not None and one.low <= limit < one.high
        mark = Word(f"→ limit {literal(limit)}", "notable") if is_here else ""
        rows.append((ends, one.count, one.count / most if most else 0.0, mark))
    return Table(
        columns=(
            Column(title="norm", kind="number"),
            Column(title="steps", kind="number"),
            Column(kind="bar"),
            Column(title="limit"),
        ),
        rows=tuple(rows),
        is_plain=True,
    )


def _over_time(clip: Clip, width: int) -> Strips:
    """Return strips of the norm before the clip, and of the remaining part."""
    layout = layout_for(width, label=LABEL)
    # A step that several calls clip has several points.
    steps = list(dict.fromkeys(point.step for point in clip.points))
    columns = Columns(steps, layout.strip)
    norms = columns.largest((point.step, point.norm) for point in clip.points)
    left = columns.largest((point.step, point.norm * point.coefficient) for point in clip.points)
    scale = Scale.decades([norms, left])
    course = f"{figure(clip.points[0].norm)} → {figure(clip.points[-1].norm)}"
    strips = [Strip(label="  over time", cells=norms, scale=scale, course=course)]
    if clip.cut:
        strips.append(Strip(label="  afterwards", cells=left, scale=scale, course=""))
    return Strips(strips=tuple(strips), first=steps[0], last=steps[-1], layout=layout)


def _limits(clip: Clip) -> Iterator[Inner]:
    if not clip.sweep:
        return
    yield Table(
        columns=(
            Column(title="max_norm", kind="number"),
            Column(),
            Column(title="steps clipped", kind="number"),
            Column(kind="bar", rank=1),
            Column(title="mean coefficient", kind="number"),
            Column(title="of clipped steps", kind="number"),
        ),
        rows=tuple(
            (
                Word(literal(row.limit), "strong" if row.mark else "plain"),
                Word(row.mark, "notable") if row.mark else "",
                Share(row.share),
                row.share,
                row.mean,
                row.mean_cut,
            )
            for row in clip.sweep
        ),
    )
    if clip.advice is not None:
        yield Points(
            tuple(text for text in (*advice_text(clip.advice), exchange_text(clip)) if text)
        )


def _contributions(clip: Clip, view: ViewOptions) -> Iterator[Section]:
    """Yield who makes the norm: modules, then parameters."""
    found = clip.contributions
    blocks: list[Inner] = []
    # Modules with one parameter each would repeat the table of parameters.
    if 1 < len(found.modules) < len(found.parameters):
        blocks += _shares("module", found.modules, _MODULES_SHOWN)
    if found.parameters:
        blocks += _shares("parameter", found.parameters, 2 * view.top)
    yield from section("Contributions to the norm", blocks, note=f"mean share of the {found.power}")


def _shares(kind: str, rows: Sequence[Contribution], shown: int) -> Iterator[Inner]:
    yield Table(
        columns=(
            Column(title=kind, kind="name"),
            Column(title="share", kind="number"),
            Column(kind="bar", rank=1),
            Column(title="max", kind="number"),
            Column(title="median norm", kind="number"),
            Column(title="after", kind="number"),
        ),
        rows=tuple(
            (
                Word(row.name or "the model itself", "name"),
                Share(row.share),
                row.share,
                Share(row.largest),
                row.before,
                row.after,
            )
            for row in rows[:shown]
        ),
    )
    if hidden := tuple(rows[shown:]):
        yield Points((Word(f"… {rest_text(hidden)}", "soft"),))


def _methods(clip: Clip) -> Table:
    """Return the effects of the methods on the same gradients."""
    titles = ("limit", "steps clipped", "norm after", "coefficient", "cosine", "min cosine")
    marks: dict[bool, Mark] = {True: "strong", False: "plain"}
    return Table(
        columns=(
            Column(title="method"),
            *(Column(title=title, kind="number") for title in titles),
        ),
        rows=tuple(
            (
                Word(METHODS[row.method], marks[row.is_asked]),
                literal(row.limit),
                Share(row.share),
                row.after,
                row.coefficient,
                row.cosine,
                row.worst,
            )
            for row in clip.methods
        ),
    )


def _closing(report: Report, clipping: Clipping) -> str:
    found = found_text(report)
    words = [found] if found else []
    for clip in clipping.sections[:1]:
        words.append(f"{counted(len(clip.points), 'gradient')} measured")
        if clip.method is not None:
            words.append(f"{len(clip.cut):,} clipped by {clip.text}")
        if clip.advice is not None:
            words.append(f"recommended max_norm {literal(clip.advice.limit)}")
    return f"{', '.join(words)}."
