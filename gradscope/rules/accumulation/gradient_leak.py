"""GS317: gradients of one loss in the step of another loss's optimizer."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.recording_index import RecordingIndex, captured_lines, derived_once
from gradscope.analysis.windows import Series, Window, Windows, events_of
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, GradEvent, StepEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, Recording, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A step with gradients that a search for an input has left behind."""

    backward: BackwardEvent
    """Last pass of the search."""
    own: BackwardEvent
    """Backward of the loss that the step is for."""
    step: StepEvent
    passes: int
    """Number of passes of the search in this step."""
    count: int
    """Number of steps that it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLeak(Rule):
    """A step uses gradients that another loss, or an attack on the inputs, has left behind.

    What it finds:
        Two optimizers with separate losses, such as those of an actor and a critic, or of a
        generator and a discriminator. The backward of one loss also fills the gradients of the
        other's parameters, nothing zeroes them, and the other optimizer steps with the sum of both.

        Also an attack on the inputs, or another search by gradients, whose `backward()` fills the
        gradients of the model that is attacked, after its zero_grad and before its own loss.

    Why it matters:
        Each of the two is trained by the other's loss, too. The generator's loss moves the
        discriminator to be fooled, an actor's loss moves the critic to praise it.

    How it is measured:
        From the captured steps the rule knows which parameters the backward of each line reaches.
        It follows the events: a backward reaches parameters of an optimizer, another optimizer
        steps, a second backward at another line reaches them again, and only then their optimizer
        steps, alone, with no zero_grad of its parameters since before the first. It is reported if
        this is so in half of the optimizer's steps, and in `steps` at least. It is an error if the
        first backward reaches all that the second does, a warning if it reaches a part. Both may be
        at one line, that of a helper, if the first backward reaches what the other optimizer holds
        and the second never does. It is a warning, too, if the first backward is for a tensor that
        requires grad and that no optimizer steps, and the last one, at another line, does not
        depend on such a tensor. Derivatives by `autograd.grad` between the two make it a penalty,
        and no finding.

    How to fix it:
        Call zero_grad() right before the backward whose gradients the step should use. For an
        attack, use `torch.autograd.grad(loss, inputs)`, which fills no gradients. Or detach the
        tensors that one loss takes from the other's network, or set `requires_grad_(False)` on
        it meanwhile.

    When it may be wrong:
        If the parameters should learn from both losses, and their optimizer steps after the second.

    Source:
        Goodfellow et al. 2014, "Generative Adversarial Nets" (arXiv 1406.2661), algorithm 1: each
        of the two steps uses the gradient of its own loss. PyTorch tutorial "DCGAN".
        Measured: in all steps but the first of 3 sick loops, in no step of 8 healthy ones with
        two optimizers.
    """

    code: ClassVar[str] = "GS317"
    name: ClassVar[str] = "gradient-leak"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    steps: int = 3
    """Number of steps that use such gradients. Chosen: the first steps of a training may differ."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        is_alone = sum(1 for series in context.shared(Windows).series if series.windows) < 2
        if is_alone and not context.shared(_SearchingLines).searching:
            return "fewer than two optimizers step, and no backward is for an input"
        return None if context.shared(_Reaches).by_line else "no step of the run was captured"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that uses another loss's gradients."""
        for series in context.shared(Windows).series:
            leaks = [leak for window in series.windows if (leak := _leak(context, series, window))]
            context.measured(self.code, "steps", steps_of(leaks), self.steps, subject=series.name)
            # An actor that steps at every second critic step leaks at half of the critic's steps.
            if steps_of(leaks) >= self.steps and 2 * steps_of(leaks) >= series.step_count:
                yield self._finding(context, series, leaks)
                continue
            searches = list(_searches_of(context, series))
            context.measured(
                self.code, "searches", steps_of(searches), self.steps, subject=series.name
            )
            if steps_of(searches) >= self.steps and 2 * steps_of(searches) >= series.step_count:
                yield self._of_a_search(context, series, searches)

    def _of_a_search(self, context: RuleContext, series: Series, searches: list[Search]) -> Finding:
        search, steps = searches[-1], steps_of(searches)
        return self.finding(
            context,
            message=(
                "this backward is for an input, but also leaves gradients in the parameters of "
                f"{series.name}, and its step uses them: {steps:,} of {series.step_count:,} steps"
            ),
            remedy=(
                "use torch.autograd.grad(loss, inputs), or call "
                f"{series.name}.zero_grad() right before the loss's own backward"
            ),
            site=search.backward.site,
            related=(
                context.related(search.own.site, "the backward of the loss adds to them"),
                context.related(search.step.site, "this step uses the sum"),
            ),
            severity="warning",
            evidence={
                "steps": steps,
                "steps_of_optimizer": series.step_count,
                "limit": self.steps,
                "passes": search.passes,
            },
            count=steps,
            step=searches[0].step.step,
        )

    def _finding(self, context: RuleContext, series: Series, leaks: list["_Leak"]) -> Finding:
        leak = leaks[-1]
        name = leak.foreign.subject
        # A library's own wrapper of backward() has only `*args`.
        what = f"{name}.backward()" if name and not name.startswith("*") else "a backward"
        return self.finding(
            context,
            message=(
                f"{what} leaves gradients in {len(leak.parameters)} parameters of {series.name}, "
                f"and its step uses them: {steps_of(leaks):,} of {series.step_count:,} steps"
            ),
            remedy=f"call {series.name}.zero_grad() right before the backward of its own loss",
            site=leak.foreign.site,
            related=(
                *(
                    context.related(line, "the loss takes what they made here, not detached")
                    for line in _entries(context, leak)
                ),
                context.related(leak.own.site, "the backward of its own loss adds to them"),
                context.related(leak.step.site, "this step uses the sum"),
            ),
            severity="error" if leak.is_whole else "warning",
            parameters=sorted(leak.parameters),
            evidence={
                "steps": steps_of(leaks),
                "steps_of_optimizer": series.step_count,
                "limit": self.steps,
                "parameters": len(leak.parameters),
            },
            count=steps_of(leaks),
            step=leaks[0].step.step,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leak:
    """A step with the gradients of two losses."""

    foreign: BackwardEvent
    """Backward of the other optimizer's loss."""
    own: BackwardEvent
    step: StepEvent
    parameters: frozenset[int]
    """Parameters that both backward passes reached."""
    is_whole: bool
    """Whether the first backward reached all that the second did."""
    count: int
    """Number of steps that it stands for."""


@dataclass(frozen=True)
class _Reaches:
    """The parameters that the backward passes of each line reach, where they were captured."""

    indexed: RecordingIndex

    @cached_property
    def by_line(self) -> dict[int, frozenset[int]]:
        """By line: those that every captured backward there has reached."""
        recording = self.indexed.recording
        known = {record.name: record.index for record in recording.parameters}
        found: dict[int, frozenset[int]] = {}
        for captured, site in captured_lines(recording):
            names = captured.recording.parameters
            reached = frozenset(
                known[names[stat.parameter].name]
                for stat in captured.recording.parameter_stats
                # Indices of parameters belong to one captured step; only names are the same in all
                # of them.
                if stat.reach == "gradient" and names[stat.parameter].name in known
            )
            if site is not None:
                # A line whose loss depends on a branch must reach a parameter each time: the rule
                # applies it to steps that were not captured.
                found[site] = found.get(site, reached) & reached
        return found

    @cached_property
    def _by_turn(self) -> dict[tuple[int | None, int | None], frozenset[int]]:
        """By line and by the optimizer that steps next: what a captured backward has reached."""
        recording = self.indexed.recording
        known = {record.name: record.index for record in recording.parameters}
        order = sorted((record.step, record.order) for record in recording.events)
        steps = list(only(StepEvent, derived_once(recording, events_of)))
        found: dict[tuple[int | None, int | None], frozenset[int]] = {}
        for captured, site in captured_lines(recording):
            position = bisect_left(order, (captured.step, captured.order))
            following = bisect_left(steps, position, key=attrgetter("position"))
            names = captured.recording.parameters
            if following < len(steps):
                turn = site, steps[following].optimizer
                found[turn] = found.get(turn, frozenset()) | {
                    known[names[stat.parameter].name]
                    for stat in captured.recording.parameter_stats
                    if stat.reach in ("gradient", "zero") and names[stat.parameter].name in known
                }
        return found

    def are_apart(self, own: BackwardEvent, series: Series, users: Sequence[StepEvent]) -> bool:
        """Return whether a line serves two losses, such as that of a helper for both optimizers.

        Before the steps of the other optimizer, its backward reaches what that one holds; before
        those of this optimizer, it never does.
        """
        for user in users:
            theirs = self._by_turn.get((own.site, user.optimizer), frozenset()) - set(
                series.parameters
            )
            ours = [
                reached
                for (site, optimizer), reached in self._by_turn.items()
                if site == own.site and optimizer in series.optimizers
            ]
            if theirs and ours and not any(theirs & reached for reached in ours):
                return True
        return False


def _leak(context: RuleContext, series: Series, window: Window) -> _Leak | None:
    """Return the leak in a step of an optimizer, None without one."""
    zeros = window.zeros(series.optimizers)
    if not zeros:
        return None  # old gradients, which is another mistake
    reaches, turns = context.shared(_Reaches).by_line, context.shared(_Reaches)
    held = frozenset(series.parameters)
    passes = [
        (event, reached)
        for event in only(BackwardEvent, window.events)
        if event.position > zeros[-1].position
        and (reached := reaches.get(event.site if event.site is not None else -1, held) & held)
        and event.site in reaches
    ]
    others = [
        event
        for event in only(StepEvent, window.events)
        if event.optimizer not in series.optimizers
    ]
    # A step of another optimizer after the last pass means both losses come before both steps, as
    # in joint training: their sum may be intended.
    if len(passes) < 2 or any(one.position > passes[-1][0].position for one in others):
        return None
    own, of_own = passes[-1]
    for foreign, reached in passes[:-1]:
        users = [one for one in others if foreign.position < one.position < own.position]
        is_apart = foreign.site != own.site or turns.are_apart(own, series, users)
        # Without a step of another optimizer in between, nothing has used the first pass: it is a
        # second loss of this optimizer.
        if is_apart and users and reached & of_own:
            return _Leak(
                foreign=foreign,
                own=own,
                step=window.step,
                parameters=reached & of_own,
                is_whole=of_own <= reached,
                count=window.count,
            )
    return None


def _entries(context: RuleContext, leak: _Leak) -> tuple[Site, ...]:
    """Return the lines where another network uses results of the parameters with the leak."""
    records = context.recording.parameters
    names = {records[index].name for index in leak.parameters}
    for captured, site in captured_lines(context.recording):
        if site == leak.foreign.site:
            return tuple(dict.fromkeys(_lines_of_entries(captured.recording, names)))
    return ()


def _lines_of_entries(recording: Recording, names: set[str]) -> Iterator[Site]:
    """Yield the lines of operations on both results of named parameters and other parameters."""
    index = RecordingIndex(recording)
    own: dict[int, bool] = {}
    other: dict[int, bool] = {}
    for node in sorted(recording.nodes, key=lambda one: -one.depth):  # leaves come first
        inputs = index.inputs(node.index)
        name = None if node.parameter is None else recording.parameters[node.parameter].name
        own[node.index] = name in names or any(own[one] for one in inputs)
        other[node.index] = name not in {*names, None} or any(other[one] for one in inputs)
        # The entry is where results of the leaking parameters alone meet another network: only
        # there does a detach cut one network off and leave the other.
        made = [one for one in inputs if own[one] and not other[one]]
        if other[node.index] and any(recording.nodes[one].kind == "operation" for one in made):
            site = _outermost_line(recording, node)
            if site is not None:
                yield recording.sites[site]


def _outermost_line(recording: Recording, node: NodeRecord) -> int | None:
    """Return the line that calls the model in which a node was made, or the node's line."""
    site, call = node.site, node.module_call
    # The place for a detach is the argument of the call in the training loop, not a line within the
    # model's forward.
    while call is not None:
        record = recording.calls[call]
        site = site if record.site is None else record.site
        call = record.parent
    return site


@dataclass(frozen=True)
class _SearchingLines:
    """The lines of the captured backward passes, by whether they depend on such an input."""

    indexed: RecordingIndex

    @cached_property
    def _by_line(self) -> dict[int, set[bool]]:
        found: dict[int, set[bool]] = {}
        for captured, site in captured_lines(self.indexed.recording):
            if site is not None:
                own = captured.recording
                reaches = any(stat.reach == "gradient" for stat in own.parameter_stats)
                # A leaf that is no parameter requires grad because something searches for it, as an
                # attack for a perturbation.
                has_input = any(node.kind == "leaf" for node in own.nodes)
                found.setdefault(site, set()).add(has_input and reaches)
        return found

    @cached_property
    def searching(self) -> frozenset[int]:
        """Lines all of whose passes depend on an input, and reach parameters, too."""
        # A line whose passes differ is a function that serves the attack and the training.
        return frozenset(line for line, found in self._by_line.items() if found == {True})

    @cached_property
    def others(self) -> frozenset[int]:
        """Lines none of whose passes does."""
        return frozenset(line for line, found in self._by_line.items() if found == {False})


def _searches_of(context: RuleContext, series: Series) -> Iterator[Search]:
    """Yield the steps of an optimizer whose gradients are in part those of a search."""
    lines = context.shared(_SearchingLines)
    for window in series.windows if lines.searching else ():
        found = _search(lines, series, window)
        if found is not None:
            yield found


def _search(lines: _SearchingLines, series: Series, window: Window) -> Search | None:
    zeros = window.zeros(series.optimizers)
    if not zeros:
        return None  # old gradients, which is another mistake
    since = [one for one in window.events if one.position > zeros[-1].position]
    passes = list(only(BackwardEvent, since))
    # A gradient penalty takes derivatives for an input, too, and is part of the loss on purpose.
    if len(passes) < 2 or any(only(GradEvent, since)) or passes[-1].site not in lines.others:
        return None
    searching = [one for one in passes[:-1] if one.site in lines.searching]
    if not searching:
        return None
    return Search(
        backward=searching[-1],
        own=passes[-1],
        step=window.step,
        passes=len(searching),
        count=window.count,
    )
