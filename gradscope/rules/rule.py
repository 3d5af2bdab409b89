"""The definition of a rule, the families of rules, and the contents of a finding."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fingerprint import fingerprint_of
from gradscope.rules.fix import FixRule
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs

FAMILIES = {
    "GS1": "flow",
    "GS2": "reach",
    "GS3": "accumulation",
    "GS4": "clipping",
    "GS5": "autograd",
    "GS6": "precision",
    "GS7": "loss",
    "GS8": "ranks",
    "GS9": "tool",
}
"""Name of each family, which is also a selector."""


def family_of(code: str) -> str:
    """Return the name of a code's family."""
    return FAMILIES[code[:3]]


Lasting = Literal["no", "on", "always"]
"""Captured steps that must show a mistake. `no`: any one. `on`: at least half of those from the
first one that shows it, and at least two; otherwise it was chance. `always`: the same, from the
first captured step on, as a state that training leads to is no mistake.
"""

Evidence = Mapping[str, float | str | bool | None]

RelatedLine = tuple[Site | None, str]
"""Another line that contributes to a cause, if it is known, and what happens there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ABC):
    """A kind of mistake: its class says which, its fields are the thresholds.

    The docstring of a rule is its manual: a first line for the table of rules, then sections under
    the headings of `gradscope.rules.manual.HEADINGS`. The docstring under each field gives the
    threshold's unit and source.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    """Name of the problem, not of the remedy."""
    level: ClassVar[Severity]
    """Severity of a typical finding; a finding may be milder or worse."""
    needs_run: ClassVar[bool] = False
    """Whether it judges the steps of a training run, rather than one step that was captured in
    full.
    """
    lasts: ClassVar[Lasting] = "no"
    """Captured steps of a training run that must show the mistake."""
    judges_learning: ClassVar[bool] = False
    """Whether it judges what parameters learn by a gradient. This does not apply to a gradient that
    is computed for an input, such as a saliency map or an attack.
    """
    judges_late: ClassVar[bool] = False
    """Whether it also judges backward passes whose forward was not observed."""
    needs: ClassVar[Needs] = ()
    """What must be known of a recording; the first that is not is why the rule cannot judge it."""
    explains: ClassVar[tuple[str, ...]] = ()
    """Codes, or prefixes of codes, of rules whose findings are consequences of this rule's."""
    measures: ClassVar[tuple[Measure, ...]] = ()
    """Measures of how bad a finding is, besides its level and its count. The first one whose number
    and limit are in the evidence is used. Empty if the mistake has no degree.
    """

    argument: ClassVar[ArgumentKind | None] = None
    """What a trainer's argument sets to cause it. Where a trainer makes the mistake, findings point
    at this argument of the user's call.
    """
    fix: ClassVar[FixRule | None] = None
    """How its findings are fixed by an edit; None if only a person can."""

    def is_for(self, context: RuleContext) -> bool:
        """Return whether a recording is of the kind that the rule judges."""
        return context.is_run or not self.needs_run

    def is_asked_for(self, context: RuleContext) -> bool | None:
        """Return whether the user has set the required limits; None if the rule needs none.

        Where it is asked for, `select` need not name it. Where it is not, it is not mentioned.
        """
        return None

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why the rule cannot judge the recording, None if it can."""
        for need in self.needs:
            if (reason := need(context)) is not None:
                return reason
        return None

    @abstractmethod
    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every cause."""

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield findings from a run's events, for a rule that otherwise judges single passes."""
        yield from ()

    def finding(  # noqa: PLR0913 - a finding has as many parts
        self,
        context: RecordingIndex,
        *,
        message: str,
        remedy: str,
        site: int | Site | None,
        related: Iterable[RelatedLocation | RelatedLine | None] = (),
        severity: Severity | None = None,
        parameters: Iterable[int] = (),
        names: Iterable[str] = (),
        modules: Iterable[str] = (),
        evidence: Evidence | None = None,
        count: int = 1,
        step: int | None = None,
        caused_by: Iterable[str] = (),
        explains: Iterable[str] = (),
        cause: str | None = None,
        ranks: Iterable[int] = (),
    ) -> Finding:
        """Return a finding of this rule.

        Args:
            context: What is judged.
            message: What is wrong, with the numbers, in one sentence without a full stop.
            remedy: One thing to try, likewise.
            site: The line that causes it.
            related: Other lines, as `context.related` gives them; None is left out. Of lines with
                texts, each is listed once, and the causing line is not.
            severity: The rule's own level if not given.
            parameters: Those it explains (indices).
            names: Names of tensors that it explains and that are no parameters of the recording.
            modules: Their modules' paths; by default those that own the parameters.
            evidence: Measured numbers and the limits that they crossed.
            count: How many things, by what the rule counts.
            step: The first step that shows it; by default the judged one.
            caused_by: Rules whose findings explain this one, if there are any on the same line or
                about one of these parameters.
            explains: Rules whose findings are consequences of this one, beside those of the class.
            cause: What the finding is known again by, where that is not its line: a limit, say,
                whose finding points now here and now there. Holds no measured number.
            ranks: Ranks of a distributed job that show it.
        """
        location = context.site(site) if isinstance(site, int) else site
        made = location
        # Nobody edits an installed package: the line of the user's that called into it is where to
        # look.
        users = context.users_line(location) if location and location.is_installed else None
        if users is not None:
            inside = context.related(location, "in the library, here", is_inside=True)
            related = (*related, inside)
            location = users
        indices = list(dict.fromkeys(parameters))
        explained = tuple(context.recording.parameters[index].name for index in indices)
        explained = (*explained, *names)
        owners = tuple(modules) or tuple(dict.fromkeys(context.owner(index) for index in indices))
        return Finding(
            rule=self.code,
            name=self.name,
            severity=severity or self.level,
            message=message,
            location=location,
            related=tuple(_located(context, made, related)),
            parameters=explained,
            modules=owners,
            step=context.judged if step is None else step,
            count=count,
            evidence=tuple((evidence or {}).items()),
            remedy=remedy,
            caused_by=tuple(caused_by),
            explains=tuple(explains),
            ranks=tuple(ranks),
            # The line that made it distinguishes two causes within a library that one line of the
            # user's calls.
            fingerprint=fingerprint_of(self.code, context, made, cause),
        )


def _located(
    context: RecordingIndex,
    main: Site | None,
    related: Iterable[RelatedLocation | RelatedLine | None],
) -> Iterator[RelatedLocation]:
    """Yield related locations; of lines with texts each one once, without the main one."""
    listed = set() if main is None else {(main.file, main.line)}
    for one in related:
        if isinstance(one, RelatedLocation):
            yield one
        elif one is not None and one[0] is not None:
            site, message = one
            if site is not None and (site.file, site.line) not in listed:
                listed.add((site.file, site.line))
                location = context.related(site, message)
                yield from () if location is None else (location,)
