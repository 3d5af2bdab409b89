"""The report on one forward and backward, a run, or a training on one batch, as a document."""

from collections.abc import Iterator

from gradscope.analysis.columns import Columns
from gradscope.analysis.losses import Overfit
from gradscope.analysis.recording_index import first_step
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.report.document import (
    Block,
    Document,
    Fact,
    Facts,
    Inner,
    Line,
    Mark,
    Note,
    Section,
    Strip,
    Strips,
    Word,
)
from gradscope.report.documents.accumulation import accumulation_sections
from gradscope.report.documents.attention import attention_sections
from gradscope.report.documents.module_tree import (
    module_sections,
    parameter_sections,
    tensor_sections,
)
from gradscope.report.documents.run import rank_sections, run_closing, run_header, run_sections
from gradscope.report.finding_phrasing import (
    found_text,
    guess_warning,
    next_of_report,
    parameter_counts,
    tensor_counts,
    training_text,
)
from gradscope.report.findings import findings_of, missing_parts
from gradscope.report.number_format import figure, folded_names
from gradscope.report.strips import LABEL, Scale, layout_for
from gradscope.target.notation import parse_target

_SHOWN = 4
"""Maximum number of names that are spelled out."""

_MARKS: dict[str, Mark] = {"learned": "good", "stuck": "bad", "diverged": "bad"}


def overfit_sections(report: Report, width: int) -> Iterator[Section]:
    """Yield the section of a recording that has a training on one batch."""
    found = Overfit.of(report.recording)
    if found is None:
        return
    record = found.record
    facts = [
        Fact("result", Word(overfit_text(found), _MARKS.get(found.outcome, "plain"))),
        Fact("optimizer", record.optimizer),
        Fact("moved", _moved(report, found)),
    ]
    yield Section(
        title="One batch",
        note="a training on this batch alone, undone afterwards",
        result=f"One batch: {overfit_text(found)}.",
        blocks=(Facts(tuple(facts)), _curve(found, width)),
    )


def overfit_text(found: Overfit) -> str:
    """Return the result in a sentence."""
    losses, steps = found.record.losses, counted(found.steps, "step")
    change = f"loss {figure(losses[0])} → {figure(losses[-1])}"
    match found.outcome:
        case "learned":
            return f"learned after {steps}: {change}"
        case "diverged":
            return f"diverged within {steps}: {change}"
        case "stuck":
            return f"stuck from step {found.since:,}: {change} after {steps}"
        case _:
            return f"still falling after {steps}: {change}"


def _moved(report: Report, found: Overfit) -> Line:
    known = [index for index, moved in enumerate(found.record.moved) if moved is not None]
    if not found.still:
        return f"all {counted(len(known), 'parameter')}"
    every = [parameter.name for parameter in report.parameters]
    names = folded_names([every[index] for index in found.still], every)
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    shown = ", ".join(names[:_SHOWN])
    moving = len(known) - len(found.still)
    return (
        f"{moving:,} of {counted(len(known), 'parameter')}; ",
        Word(f"these did not move: {shown}{more}", "notable"),
    )


def _curve(found: Overfit, width: int) -> Strips:
    losses = found.record.losses
    layout = layout_for(width, label=LABEL)
    columns = Columns(range(len(losses)), layout.strip)
    cells = columns.mean(enumerate(losses))
    course = f"{figure(losses[0])} → {figure(losses[-1])}"
    curve = Strip(label="loss", cells=cells, scale=Scale.linear(cells), course=course)
    return Strips(strips=(curve,), first=0, last=len(losses) - 1, layout=layout)


def inspection_document(report: Report, view: ViewOptions, width: int) -> Document:
    """Return the effect of backward on the model's parameters and tensors, and the findings."""
    run = report.training_run
    return Document(
        program="gradscope" if run is None else "gradscope run",
        subject=report.target.name,
        header=header_of(report),
        blocks=(
            *findings_of(report),
            *rank_sections(report),
            *(
                _measured(report, view, width)
                if run is None
                else run_sections(report, run, view, width)
            ),
            *missing_parts(report),
        ),
        closing=(_closing(report, view) if run is None else run_closing(report, run, view),),
        next_command=next_of_report(report),
    )


_ADVICE = {
    "arguments": "'{file}:{model}(...)'",
    "batch": "--input or build_batch()",
    "loss": "--loss or compute_loss(model, batch)",
}
"""How to replace each guess, with names of the target's file and model."""


def header_of(report: Report, *further: Fact) -> tuple[Inner, ...]:
    """Return the header with further facts, and a warning if a part is guessed."""
    if report.training_run is not None:
        return tuple(run_header(report, report.training_run, *further))
    facts = Facts((*_target_facts(report), *further))
    warning = guess_warning(report.target)
    if warning is None:
        return (facts,)
    names = {"file": parse_target(report.target.name).location, "model": report.target.model}
    parts = (_ADVICE[part].format(**names) for part in report.target.guesses)
    advice = f"Give yours: {'; '.join(parts)}."
    return facts, Note((Word("warning: ", "error"), f"{warning}."), hint=advice)


def _target_facts(report: Report) -> Iterator[Fact]:
    target, environment = report.target, report.environment
    yield Fact("model", f"{target.model} in {target.mode} mode")
    yield Fact("batch", target.batch)
    yield Fact("loss", f"{figure(report.summary.loss)} from {target.loss}")
    if target.optimizer:
        yield Fact("optimizer", target.optimizer)
    if report.job is not None:
        yield Fact("ranks", report.job.title)
    if report.training:
        yield Fact("trained", training_text(report, "→", figure))
    seed = [] if target.seed is None else [f"seed {target.seed}"]
    yield Fact("run", " · ".join([*seed, environment.device, f"torch {environment.torch}"]))


def _measured(report: Report, view: ViewOptions, width: int) -> Iterator[Block]:
    if not _is_measured(report):
        return
    scope = (Note(Word("of the whole model:", "soft")),) if view.module else ()
    yield Section(blocks=(*scope, Facts(tuple(summary_facts(report)))))
    yield from overfit_sections(report, width)
    yield from accumulation_sections(report)
    yield from module_sections(report, view)
    lists = (parameter_sections(report, view), tensor_sections(report, view))
    yield from attention_sections(report)
    # Non-finite values originate in a tensor.
    for found in reversed(lists) if report.summary.nonfinite_tensors else lists:
        yield from found
    if report.probes:
        yield Note(_probes(report))


def _is_measured(report: Report) -> bool:
    """Whether there was a backward, which an exception may have ended."""
    view = first_step(report.recording)
    return bool(view.parameter_stats or view.tensor_stats)


def summary_facts(report: Report) -> Iterator[Fact]:
    """Yield the report in numbers, a fact a subject."""
    summary, graph = report.summary, report.graph
    yield Fact("parameters", parameters_line(report))
    yield Fact("gradient", _gradient(report))
    tensors = [f"{summary.tensors:,} measured"]
    if summary.unmeasured_tensors:
        tensors.append(f"{summary.unmeasured_tensors:,} not measured")
    if summary.views:
        one, many = "is a view and shares its", "are views and share their"
        verb = one if summary.views == 1 else many
        tensors.append(f"{summary.views:,} more {verb} tensor's gradient")
    yield Fact("tensors", ", ".join(tensors))
    parts = [counted(graph.nodes, "node"), counted(graph.edges, "edge"), f"depth {graph.depth:,}"]
    if graph.widest is not None:
        side = f"({graph.widest.nodes:,} side by side)"
        parts.append(f"widest at depth {graph.widest.depth:,} {side}")
    yield Fact("graph", ", ".join(parts))


def parameters_line(report: Report) -> Line:
    """Return the number of parameters, and their states after backward."""
    summary = report.summary
    is_whole = summary.reached == summary.parameters and summary.parameters
    reached = f"{'all ' if is_whole else ''}{summary.reached:,} reached"
    parts: list[str | Word] = [
        f"{counted(summary.numel, 'element')} in {counted(summary.parameters, 'tensor')}: {reached}"
    ]
    counts: tuple[tuple[int, str, Mark], ...] = (
        (summary.zero, "zero", "notable"),
        (summary.none, "without gradient", "notable"),
        (summary.unknown, "not measured", "soft"),
        (summary.frozen, "frozen", "soft"),
    )
    for count, what, mark in counts:
        if count:
            parts += [", ", Word(f"{count:,} {what}", mark)]
    return tuple(parts)


def _gradient(report: Report) -> Line:
    summary = report.summary
    text = f"global norm {figure(summary.grad_norm)}"
    if not (summary.nonfinite_parameters or summary.nonfinite_tensors):
        return text if summary.grad_norm is None else f"{text}, all finite"
    broken = (
        f"non-finite in {counted(summary.nonfinite_parameters, 'parameter')} "
        f"and {counted(summary.nonfinite_tensors, 'tensor')}"
    )
    return f"{text}, ", Word(broken, "bad")


def _probes(report: Report) -> str:
    """Return the effect of the probe steps on loss and norm."""
    last = report.probes[-1]
    article = "" if report.target.optimizer else "an assumed "
    optimizer = f" of {article}{last.optimizer}" if last.optimizer else ""
    changes = [
        f"{name} {figure(before)} → {figure(after)}"
        for name, before, after in (
            ("loss", report.summary.loss, last.loss),
            ("norm", report.summary.grad_norm, last.grad_norm),
        )
    ]
    return f"after {counted(len(report.probes), 'probing step')}{optimizer}: {', '.join(changes)}"


def _closing(report: Report, view: ViewOptions) -> Note:
    summary, found = report.summary, found_text(report)
    counts = [
        *([found] if found else []),
        parameter_counts(report),
        tensor_counts(report),
        f"global gradient norm {figure(summary.grad_norm)}",
    ]
    tips = []
    if not _is_measured(report):
        counts[-1] = "no gradient measured"
    elif view.tensors != "all":
        tips.append("Use --tensors all to list every tensor.")
    if view.can_save:
        tips.append("Use --save FILE to keep the recording.")
    scope = " in the whole model" if view.module else ""
    return Note(f"{', '.join(counts)}{scope}.", hint=" ".join(tips))
