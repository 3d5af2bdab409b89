"""GS208: parameters that an optimizer holds and that are frozen."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from gradscope.analysis.intent import Intent
from gradscope.analysis.loop_windows import LoopWindow
from gradscope.analysis.losses import stepped
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import BackwardEvent, StepEvent, only
from gradscope.recording.evidence.parameters import PartlyUnfrozenRecord
from gradscope.recording.evidence.training import SourceRecord, TrainedOptimizer
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import CapturedStep, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers, positions, stops
from gradscope.rules.helpers.source_text import statement_texts
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_CAPTURES = 3
"""Number of later captured backward passes that show that a network is frozen and used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenParameterInOptimizer(Rule):
    """The optimizer holds parameters that are frozen.

    What it finds:
        Parameters with `requires_grad=False` in a group of the target's optimizer.

    Why it matters:
        They get no gradient and torch's optimizers skip them, so nothing goes wrong yet. But a
        gradient from before they were frozen is still applied, and momentum or weight decay keeps
        moving them.

    How it is measured:
        `requires_grad` of every parameter in the optimizer's groups. The rule skips tables of
        embeddings and positions, which are often fixed, and an optimizer whose parameters are all
        frozen, which happens if networks take turns. There is no threshold. It is a warning if
        `Embedding.from_pretrained(…)` froze tables by its default although these have a group and a
        learning rate of their own, or although the call has `padding_idx`, `sparse` or
        `scale_grad_by_freq`, which change the gradient alone: it should learn. In a run, nothing
        else is judged of torch's own optimizers, and such a table must not learn at any time;
        except that it is an error if parameters learn at first and are frozen for at least the last
        `tail_steps` steps, while others learn, and a function of the script freezes a module, uses
        it, and then unfreezes only a part of it. In a run it is an error if an optimizer steps
        once, after a single backward, and all that it holds is frozen from there on, while others
        make at least `tail_steps` steps through it, as in a GAN whose discriminator is never
        unfrozen.

    How to fix it:
        Freeze first, and give the optimizer `[p for p in model.parameters() if p.requires_grad]`.

    When it may be wrong:
        If they are unfrozen later, the optimizer must hold them. If a network is meant to learn for
        one step only.

    Source:
        torch documentation, "Autograd mechanics", "Setting requires_grad".
    """

    code: ClassVar[str] = "GS208"
    name: ClassVar[str] = "frozen-parameter-in-optimizer"
    level: ClassVar[Severity] = "note"
    judges_learning: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure(number="frozen_steps"),
        Measure(number="parameters_frozen"),
    )

    tail_steps: int = 8
    """Number of last steps for which parameters stay frozen. Chosen, as in GS306: more than a phase
    of a GAN.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(True for _ in _tables_by_default(context)):
            return None
        return Optimizers(context).skip_reason()

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for what stays frozen although it was to learn."""
        yield from self._after_one_step(context)
        sites = {
            (captured.recording.sites[one.frozen], captured.recording.sites[one.unfrozen])
            for captured in context.recording.captured_steps
            for one in captured.recording.evidence_of(PartlyUnfrozenRecord)
        }
        stopped = stops(context) if sites else {}
        lasting = max((count for _, count in stopped.values()), default=0)
        if stopped:
            context.measured(self.code, "frozen_steps", lasting, self.tail_steps)
        since = {p: step for p, (step, count) in stopped.items() if count >= self.tail_steps}
        if not since:
            return
        # The first line of a file is the same in every run, whatever the order of the captured
        # steps.
        frozen, unfrozen = min(sites, key=lambda pair: (pair[0].file, pair[0].line))
        where = positions(context, since)
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        step = min(since.values())
        yield self.finding(
            context,
            message=(
                f"{', '.join(where[:3])}{more} stop learning at step {step:,}: a function freezes "
                f"the whole for one use, and unfreezes only a part of it"
            ),
            remedy="unfreeze all that was frozen, or use `torch.no_grad()` in place of freezing",
            site=unfrozen,
            related=(context.related(frozen, "the whole is frozen here"),),
            severity="error",
            parameters=since,
            evidence={
                "parameters_frozen": len(since),
                "frozen_since": step,
                "frozen_steps": lasting,
                "limit": self.tail_steps,
            },
            count=len(since),
            step=step,
        )

    def _after_one_step(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every network that is frozen after one step of its optimizer."""
        for one in _single_steps(context):
            context.measured(self.code, "frozen_steps", one.later, self.tail_steps)
            if one.later < self.tail_steps:
                continue
            parameters = one.optimizer.parameters
            name = f"{one.optimizer.name or 'the optimizer'}, the {one.optimizer.class_name} of "
            what = ", ".join(positions(context, parameters)[:3])
            yield self.finding(
                context,
                message=(
                    f"{name}{what}, steps once: its parameters are frozen for the {one.later:,} "
                    "steps of others that follow"
                ),
                remedy="unfreeze them before their own loss is computed",
                site=one.freeze or one.site,
                related=(
                    context.related(one.site if one.freeze else None, "its only step is made here"),
                ),
                severity="error",
                parameters=parameters,
                evidence={
                    "parameters_frozen": len(parameters),
                    "frozen_since": one.step + 1,
                    "frozen_steps": one.later,
                    "limit": self.tail_steps,
                },
                count=len(parameters),
                step=one.step,
            )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding for all that is frozen."""
        optimizer = Optimizers(context).targets
        yield from self._tables(context)
        if optimizer is None or (context.run is not None and optimizer.is_torchs):
            return  # in a run they may learn later on, and torch's own pass them over till then
        parameters = context.recording.parameters
        frozen = sorted(
            index
            for index in optimizer.parameters
            if not parameters[index].requires_grad and not _is_table(context, index)
        )
        if not frozen or len(frozen) == len(optimizer.parameters):
            return
        where = positions(context, frozen)
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        number = f"{len(frozen)} of {counted(len(optimizer.parameters), 'parameter')}"
        yield self.finding(
            context,
            message=(
                f"{number} in {optimizer.class_name} {'is' if len(frozen) == 1 else 'are'} "
                f"frozen: {', '.join(where[:3])}{more}"
            ),
            remedy="pass only parameters that require grad to the optimizer",
            site=optimizer.site,
            parameters=frozen,
            evidence={
                "parameters_frozen": len(frozen),
                "parameters_in_optimizer": len(optimizer.parameters),
            },
            count=len(frozen),
        )

    def _tables(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose tables are frozen by default and should learn."""
        intent = context.shared(Intent)
        by_default = dict(_tables_by_default(context))
        by_line: dict[Site, list[int]] = {}
        for index, site in by_default.items():
            by_line.setdefault(site, []).append(index)
        for site, tables in by_line.items():
            holding = intent.holding(tables)
            if holding is not None and not holding.is_own:
                # Tables of other lines may share the group.
                holding = intent.holding(by_default.keys() & set(holding.group.parameters))
            is_own = holding is not None and holding.is_own and bool(holding.group.learning_rate)
            option = _FOR_GRADIENTS.search(" ".join(statement_texts(context, site)))
            several = len(tables) > 1
            if holding is not None and is_own:
                grounds = holding.text(len(tables), several=several)
            elif option is not None:
                grounds = (
                    f"`{option[1]}` changes nothing but {'their' if several else 'its'} gradient"
                )
            else:
                continue
            more = f" and {len(tables) - 1} more are" if several else " is"
            yield self.finding(
                context,
                message=(
                    f"{context.owner(tables[0])}{more} frozen, as from_pretrained() does by "
                    f"default, although {grounds}"
                ),
                remedy="use `from_pretrained(…, freeze=False)`, or say `freeze=True`",
                site=site,
                related=(
                    context.related(
                        holding.optimizer.site if holding and is_own else None, "the optimizer"
                    ),
                ),
                severity="warning",
                parameters=tables,
                evidence={
                    "parameters_frozen": len(tables),
                    "learning_rate": holding.group.learning_rate if holding and is_own else None,
                },
                count=len(tables),
            )


_FOR_GRADIENTS = re.compile(
    r"\bEmbedding\.from_pretrained\(.*\b(padding_idx|scale_grad_by_freq|sparse)=(?!None|False)"
)
"""Options of an embedding that no frozen one needs."""


def _tables_by_default(context: RuleContext) -> Iterator[tuple[int, Site]]:
    """Yield the embeddings that `from_pretrained` froze unasked, with their lines."""
    learning = frozenset[int]() if context.run is None else context.run.learning
    for record in context.recording.parameters:
        site = context.site(context.recording.modules[record.module].site)
        if record.requires_grad or record.index in learning or site is None:
            continue
        text = " ".join(statement_texts(context, site))
        if _is_table(context, record.index) and _is_frozen_by_default(text):
            yield record.index, site


def _is_frozen_by_default(source: str) -> bool:
    return "from_pretrained(" in source and "freeze" not in source


def _is_table(context: RuleContext, parameter: int) -> bool:
    record = context.recording.parameters[parameter]
    kind = context.recording.modules[record.module].class_name
    # A table of positions is mostly a plain parameter, such as `pos_embed`.
    return "Embedding" in kind or "pos" in record.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _SingleStep:
    """The only step of an optimizer, after which all that it holds is frozen."""

    optimizer: TrainedOptimizer
    step: int
    site: Site | None
    """Line of the step."""
    freeze: Site | None
    """Line near it that freezes the network; None if there is none, or several."""
    later: int
    """Number of steps that other optimizers make afterwards."""


def _single_steps(context: RuleContext) -> Iterator[_SingleStep]:
    """Yield the only steps of optimizers whose parameters are used on, and frozen, by the script.

    A step with several backward passes, as L-BFGS makes, may be a whole stage of a training.
    """
    recording = context.recording
    by_optimizer: dict[int | None, list[LoopWindow]] = {}
    for window in stepped(recording):
        by_optimizer.setdefault(window.optimizer, []).append(window)
    for position, made in by_optimizer.items():
        if position is None or len(made) > 1 or made[0].count > 1:
            continue
        (window,) = made
        index, optimizer = window.step.index, recording.evidence_of(TrainedOptimizer)[position]
        names = {recording.parameters[one].name for one in optimizer.parameters}
        after = [one for one in recording.captured_steps if one.step > index]
        if len(list(only(BackwardEvent, window.events))) > 1 or len(after) < _CAPTURES:
            continue
        if names and all(_is_used_frozen(captured, names) for captured in after):
            event = next(only(StepEvent, window.events), None)
            others = (
                one for key, found in by_optimizer.items() if key != position for one in found
            )
            later = sum(one.count for one in others if one.step.index > index)
            site = None if event is None else context.site(event.site)
            freeze = None if site is None else _freezing_line(context, site, names)
            yield _SingleStep(optimizer, index, site, freeze, later)


def _freezing_line(context: RuleContext, site: Site, names: set[str]) -> Site | None:
    """Return the only line near the step that freezes a network, by the name that it has there."""
    roots = {name.partition(".")[0] for name in names}
    # The source names one variable; with several networks, several lines have to freeze them.
    if len(roots) > 1:
        return None
    network = rf"(?:self\.)?{re.escape(roots.pop())}\b"
    freezes = re.compile(
        # Methods of torch, helpers such as `set_requires_grad(net, False)`, and
        # `freeze_weights(net)`.
        rf"{network}\.requires_grad_\(False\)|\w\((?:{network}[^()]*, *(?:\w+=)?False)\)"
        rf"|freeze\w*\({network}"
    )
    found = [
        replace(site, line=number, source=text.strip())
        for record in context.recording.evidence_of(SourceRecord)
        if record.file == site.file and 0 <= site.line - record.first < len(record.lines)
        for number, text in enumerate(record.lines, record.first)
        if freezes.search(text)
    ]
    return found[0] if len(found) == 1 else None


def _is_used_frozen(captured: CapturedStep, names: set[str]) -> bool:
    """Return whether a captured forward runs the modules of parameters that are all frozen."""
    recording = captured.recording
    own = [one for one in recording.parameters if one.name in names]
    called = {call.module for call in recording.calls}
    is_frozen = len(own) == len(names) and not any(one.requires_grad for one in own)
    # A network that no later forward runs may have served its purpose.
    return is_frozen and all(one.module in called for one in own)
