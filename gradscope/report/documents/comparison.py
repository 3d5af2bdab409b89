"""A comparison as a document: what differs, findings, curves, parameters, the verdict."""

from collections.abc import Iterator, Sequence

from gradscope.analysis.columns import Columns, course
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.curves import ComparedCurve, SideCurve
from gradscope.comparison.findings import ComparedFinding
from gradscope.comparison.parameters import Change, ComparedParameter, ParameterPair
from gradscope.comparison.side import letter_of
from gradscope.phrasing import counted
from gradscope.report.document import (
    Block,
    Column,
    Document,
    Fact,
    Facts,
    FindingBlock,
    Findings,
    Inner,
    Line,
    Mark,
    Note,
    Points,
    Section,
    Strip,
    Strips,
    Table,
    Value,
    Word,
    more,
    section,
)
from gradscope.report.documents import DEFAULT_TOP
from gradscope.report.documents.comparison_phrasing import (
    CURVE_NAMES,
    PRESENCE,
    TITLES,
    by_side,
    change_text,
    compared_text,
    counts_text,
    difference_text,
    findings_text,
    is_news,
    loss_notes,
    parting_text,
    presence_texts,
    ranks_text,
    ratio_text,
    regression_text,
    renaming_text,
    side_text,
    spread_text,
    standing_text,
    verdict_text,
)
from gradscope.report.documents.run_phrasing import course_text
from gradscope.report.finding_phrasing import next_of_comparison
from gradscope.report.findings import finding_block
from gradscope.report.number_format import figure
from gradscope.report.strips import Scale, layout_for

_FINDINGS_IN_FULL, _FINDINGS_IN_SHORT = 5, 8
_CURVES_SHOWN = 8
_LABEL = 10
_SIDES_DRAWN, _SIDES_TOLD = 8, 16
_RENAMINGS_SHOWN = 3
_WITHIN = 5
"""Maximum number of parameters within the tolerance that are listed, to show how much of it is
used.
"""
_SILENT: frozenset[Change] = frozenset({*PRESENCE, "equal", "none", "rounding", "shard"})
"""Changes that have no row of their own."""
_MARKS: dict[Change, Mark] = {
    "non-finite": "bad",
    "lost": "bad",
    "zero": "bad",
    "frozen": "bad",
    "turned": "notable",
    "norm": "notable",
    "reshaped": "notable",
    "finite": "good",
    "gained": "good",
}


def comparison_document(
    comparison: Comparison,
    width: int,
    *,
    top: int,
    is_brief: bool = False,
    lists_all: bool = False,
) -> Document:
    """Return how sides differ, and whether a check would pass.

    Args:
        comparison: Of the sides.
        width: Characters of a line.
        top: How many parameters are listed.
        is_brief: Whether findings that are still there are left out.
        lists_all: Whether all findings are listed, however many.
    """
    program, names = "gradscope compare", " ".join(side.name for side in comparison.sides)
    return Document(
        program=program,
        # They are also listed below.
        subject=names if len(program) + len(names) < width else "",
        header=(Facts(tuple(_facts(comparison))),),
        blocks=(
            *_findings(comparison, is_brief=is_brief, lists_all=lists_all),
            *_numbers(comparison),
            *_curves(comparison, width),
            *section("Parameters", list(_parameters(comparison, top=top))),
        ),
        closing=tuple(_verdict(comparison)),
        next_command=next_of_comparison(comparison),
    )


def _facts(comparison: Comparison) -> Iterator[Fact]:
    for side in comparison.sides[:_SIDES_TOLD]:
        words = side_text(side)
        text = words if side.name in words else f"{side.name}: {words}"
        yield Fact(side.letter, text, "strong")
    if (hidden := len(comparison.sides) - _SIDES_TOLD) > 0:
        yield Fact("…", f"{hidden:,} more")
    for one in comparison.differences:
        yield Fact("differs", f"{one.what}: {difference_text(one)}")
    for side, renamings in zip(comparison.sides, comparison.renamings, strict=True):
        for renaming in renamings[:_RENAMINGS_SHOWN]:
            yield Fact("names", renaming_text(renaming, side))
        if (hidden := len(renamings) - _RENAMINGS_SHOWN) > 0:
            yield Fact("names", f"{hidden:,} more such modules in {side.letter}")
    reported = (("ranks", ranks_text(comparison)), ("compared", compared_text(comparison)))
    yield from (Fact(name, words) for name, words in reported if words)


def _findings(comparison: Comparison, *, is_brief: bool, lists_all: bool) -> Iterator[Block]:
    """Yield new findings with their code, then a line for each of the others."""
    news = [one for one in comparison.findings if is_news(one)]
    others = [one for one in comparison.findings if not is_news(one)]
    if is_brief:
        others = [one for one in others if None in one.findings]
    if not (news or others):
        if not is_brief:
            yield Note(Word("No findings.", "soft"))
        return
    gone = [one for one in others if one.standing(len(one.findings) - 1) == "went"]
    stayed = [one for one in others if one not in gone]
    groups = (("new", news), ("gone", gone), ("still there", stayed))
    full = news[:_FINDINGS_IN_FULL]
    short = [*news[_FINDINGS_IN_FULL:], *others]
    most = len(short) if lists_all else _FINDINGS_IN_SHORT
    yield Findings(
        title="Findings",
        note="; ".join(f"{name}: {findings_text(group)}" for name, group in groups if group),
        found=(
            *(_finding(one, comparison, is_brief=False) for one in full),
            *(_finding(one, comparison, is_brief=True) for one in short[:most]),
        ),
        more=more(len(short) - most, "more: --output-format json"),
    )


def _finding(one: ComparedFinding, comparison: Comparison, *, is_brief: bool) -> FindingBlock:
    """Return a finding of the first side in which it is new, otherwise of the first that has it."""
    sides = enumerate(one.findings)
    is_new = (at for at, _ in sides if at and one.standing(at) in ("came", "worse"))
    position = next(is_new, one.first[0])
    finding = one.findings[position] or one.first[1]
    report = comparison.sides[position].report
    return finding_block(finding, report, standing=standing_text(one), is_brief=is_brief)


def _numbers(comparison: Comparison) -> Iterator[Table]:
    """Yield loss and norm of each side; for runs with their curves."""
    if any(curve.kind == "loss" for curve in comparison.curves):
        return
    base = comparison.sides[0]
    rows = []
    for position, side in enumerate(comparison.sides):
        row: list[Value] = [Word(side.letter, "strong")]
        for own, before in ((side.loss, base.loss), (side.grad_norm, base.grad_norm)):
            row += [figure(own), Word(change_text(before, own) if position else "", "soft")]
        direction = comparison.directions[position]
        total = None if direction is None else direction.total
        row.append("" if total is None else ratio_text(total.cosine))
        rows.append(tuple(row))
    yield Table(
        columns=(
            Column(),
            Column(title="loss", kind="number"),
            Column(),
            Column(title="gradient norm", kind="number"),
            Column(),
            Column(title="cosine", kind="number"),
        ),
        rows=tuple(rows),
    )


def _curves(comparison: Comparison, width: int) -> Iterator[Section]:
    """Yield each curve of every side on one scale, and where sides leave the base."""
    curves = comparison.curves
    if not curves:
        return
    taken = {step for curve in curves for side in curve.sides if side for step in side.steps}
    steps = sorted(taken)
    layout = layout_for(width, label=_LABEL)
    columns = Columns(steps, layout.strip)
    blocks: list[Inner] = []
    known = ""
    for curve in curves[:_CURVES_SHOWN]:
        if curve.optimizer and curve.optimizer != known:
            blocks.append(Note(curve.optimizer))
        known = curve.optimizer
        strips = tuple(_strips(curve, columns))
        blocks.append(
            Strips(strips=strips, first=steps[0], last=steps[-1], layout=layout, has_axis=False)
        )
        reported = [
            (letter_of(position), parting_text(curve, position, comparison))
            for position in range(1, len(curve.sides))
        ]
        name = CURVE_NAMES[curve.kind]
        blocks += [
            Points(tuple(f"{name} of {letters}: {words}" for letters, words in by_side(reported)))
        ]
    if (hidden := len(curves) - _CURVES_SHOWN) > 0:
        blocks.append(Points((Word(f"… {counted(hidden, 'more curve')}", "soft"),)))
    kinds = {curve.kind for curve in curves}
    words = [
        f"steps {steps[0]:,} to {steps[-1]:,} from left to right",
        *(loss_notes(comparison) if "loss" in kinds else []),
        *(["norm: all gradients"] if "norm" in kinds else []),
    ]
    yield from section("Curves", blocks, note="; ".join(words))


def _strips(curve: ComparedCurve, columns: Columns) -> Iterator[Strip]:
    measured = [
        [] if side is None else list(zip(side.steps, side.values, strict=True))
        for side in curve.sides
    ]
    is_loss = curve.kind == "loss"
    # A loss goes by its mean; of a norm, the peak matters. Norms span orders of magnitude.
    drawn = [(columns.mean if is_loss else columns.largest)(points) for points in measured]
    known = tuple(cell for cells in drawn for cell in cells)
    scale = Scale.linear(known) if is_loss else Scale.decades([known])
    for position, side in enumerate(curve.sides[:_SIDES_DRAWN]):
        name = CURVE_NAMES[curve.kind] if position == 0 else ""
        points, cells = measured[position], drawn[position]
        yield Strip(
            # Two spaces precede the name, a space and a letter follow it.
            label=f"  {name:{_LABEL - 4}} {letter_of(position)}",
            cells=cells if points else (),
            scale=scale,
            course=course_text(course(points, cells)) if points else "not measured",
            extreme="" if side is None else _extreme(curve, side),
            is_other=position > 0,
        )
    if (hidden := len(curve.sides) - _SIDES_DRAWN) > 0:
        yield Strip(label=f"  … {hidden:,} more", cells=(), scale=scale, course="")


def _extreme(curve: ComparedCurve, side: SideCurve) -> str:
    found = course(list(zip(side.steps, side.values, strict=True)), ())
    if found.first_nonfinite is not None:
        return f"non-finite from step {found.first_nonfinite:,}"
    extreme = found.lowest if curve.kind == "loss" else found.highest
    if extreme is None:
        return ""
    word = "lowest" if curve.kind == "loss" else "largest"
    return f"{word} {figure(extreme.value)} at step {extreme.step:,}"


def _parameters(comparison: Comparison, *, top: int) -> Iterator[Inner]:
    """Yield how many parameters changed in which way, and the worst of them."""
    if not comparison.parameters:
        return
    base = comparison.sides[0].letter
    reported = []
    for position, side in enumerate(comparison.sides[1:], 1):
        words = (counts_text(comparison, position), spread_text(comparison, position))
        reported.append((side.letter, "; ".join(word for word in words if word)))
    lines = [f"{letters} against {base}: {words}" for letters, words in by_side(reported)]
    yield Points((*lines, *presence_texts(comparison)))
    shown = [
        one
        for one in comparison.parameters
        if any(pair and pair.change not in _SILENT for pair in one.pairs)
    ]
    shown.sort(key=lambda one: one.worst)
    beyond = sum(one.change != "within" for one in shown)
    # Parameters within the tolerance show how much of it is used.
    most = max(beyond, _WITHIN) if top <= DEFAULT_TOP else top
    count = min(most, top, len(shown))
    if shown:
        yield _table(shown[:count], comparison)
    if hidden := more(len(shown) - count, f"more: --top {len(shown)}"):
        yield Points(hidden)


def _table(rows: Sequence[ComparedParameter], comparison: Comparison) -> Table:
    """Return the rows, with the most important columns first."""
    changes = [one.change for one in rows]
    firsts = [turn == 0 or changes[turn - 1] != change for turn, change in enumerate(changes)]
    columns = dict(_columns(rows, comparison))
    return Table(
        columns=(
            Column(),
            Column(title="parameter", kind="name"),
            *(Column(title=title, kind="number", rank=rank) for rank, title in enumerate(columns)),
        ),
        rows=tuple(
            (
                Word(TITLES[one.change], _MARKS.get(one.change, "soft")) if is_first else "",
                Word(one.name, "name"),
                *(cells[turn] for cells in columns.values()),
            )
            for turn, (one, is_first) in enumerate(zip(rows, firsts, strict=True))
        ),
    )


def _columns(
    rows: Sequence[ComparedParameter], comparison: Comparison
) -> Iterator[tuple[str, list[Value]]]:
    sides = comparison.sides
    base, others = sides[0].letter, _others(rows, comparison)
    is_one = len(others) == 1
    yield f"norm {base}", [_norm(one, 0) for one in rows]
    if is_one:
        yield f"norm {sides[others[0]].letter}", [_norm(one, others[0]) for one in rows]
    for at in others:
        yield f"{sides[at].letter} / {base}", [_ratio(one.pairs[at], "ratio") for one in rows]
    for at in others:
        title = "cosine" if is_one else f"cos {sides[at].letter}"
        yield title, [_ratio(one.pairs[at], "cosine") for one in rows]
    if not is_one:
        return
    pairs = [one.pairs[others[0]] for one in rows]
    yield "difference", [None if pair is None else pair.relative_difference for pair in pairs]
    yield "weights", [_ratio(pair, "weight_ratio") for pair in pairs]
    if comparison.steps > 1:
        yield "from step", [None if pair is None else pair.first_difference for pair in pairs]


def _others(rows: Sequence[ComparedParameter], comparison: Comparison) -> list[int]:
    """Return the indices of the sides in which something differs from the base."""
    return [
        position
        for position in range(1, len(comparison.sides))
        if any((pair := one.pairs[position]) and pair.change not in _SILENT for one in rows)
    ]


def _norm(one: ComparedParameter, position: int) -> Value:
    side = one.sides[position]
    if side is not None and side.norm is None:
        return "frozen" if side.reach == "frozen" else "none"
    return None if side is None else side.norm


def _ratio(pair: ParameterPair | None, name: str) -> Value:
    ratio: float | None = None if pair is None else getattr(pair, name)
    return None if ratio is None else ratio_text(ratio)


def _verdict(comparison: Comparison) -> Iterator[Inner]:
    verdict = comparison.verdict
    lines: list[Line] = [
        (
            Word(f"{comparison.sides[one.side].letter}:", "strong"),
            f" {regression_text(one, comparison)}",
        )
        for one in verdict.regressions
    ]
    if lines:
        yield Points(tuple(lines))
    is_failed = verdict.outcome == "failed"
    is_bad = verdict.outcome == "unjudged" or (is_failed and comparison.is_check)
    mark: Mark = "bad" if is_bad else "strong" if lines else "good"
    hint = "Use --fail-on-regression to exit with code 1."
    is_open = is_failed and not comparison.is_check
    yield Note(Word(verdict_text(comparison), mark), hint=hint if is_open else "")
