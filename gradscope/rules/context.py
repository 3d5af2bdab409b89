"""The input of a rule: an indexed recording, and the user's own limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.recording.records import Recording, Site
from gradscope.rules.measurement import Measurement, Side
from gradscope.rules.settings import NormLimit


@dataclass(frozen=True)
class RuleContext(RecordingIndex):
    """A recording under judgement."""

    norm_limits: Mapping[str, NormLimit] = field(default_factory=dict)
    """Limits set by the user, by pattern of module paths, as in `Settings.norm_limits`."""
    ranks: tuple[Recording, ...] = ()
    """Recordings of all ranks, if a whole job is judged."""
    step: int | None = None
    """Step of the training run, if the recording is a captured backward of it; otherwise None."""
    # A list in a frozen class: rules only add to it, and it takes no part in comparing contexts.
    measurements: list[Measurement] = field(default_factory=list, compare=False, repr=False)
    """Numbers that the rules compared, in order. The captured steps of a run share the run's."""

    def measured_share(
        self,
        rule: str,
        number: str,
        found: int,
        judged: int,
        limit: float,
        *,
        subject: str = "",
        site: int | Site | None = None,
    ) -> None:
        """Record the share of objects that a rule is about; nothing if there are none."""
        if judged:
            share = found / judged
            self.measured(rule, number, share, limit, subject=subject, site=site)

    def measured(
        self,
        rule: str,
        number: str,
        value: float,
        limit: float,
        *,
        fires: Side = "above",
        subject: str = "",
        site: int | Site | None = None,
        step: int | None = None,
    ) -> None:
        """Note a number that a rule compares with a limit, for `gradscope rule CODE --why`.

        Args:
            rule: Code of the rule.
            number: Name of the number, as in the evidence of findings.
            value: The number.
            limit: Limit of the mildest finding.
            fires: Side of the limit on which the number leads to a finding.
            subject: What was measured; empty for the model.
            site: Line that a finding would point at.
            step: Step of the training run; by default that of the captured backward.
        """
        self.measurements.append(
            Measurement(
                rule=rule,
                number=number,
                value=float(value),
                limit=float(limit),
                fires=fires,
                subject=subject,
                site=self.site(site) if isinstance(site, int) else site,
                step=self.step if step is None else step,
            )
        )
