"""Options for the ranks of a distributed job."""

from typing import Annotated

from gradscope.frozen import dataclass
from gradscope.options.declaration import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """Options that say what ranks do together."""

    sync_checks: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Every Nth step, ranks of a distributed job compare digests of replicated weights "
            "and reduced gradients, and tell the first difference at once. Default: off.",
            python="Compare digests of replicated weights and reduced gradients with rank 0 in "
            "every Nth step, and tell the first difference at once.",
            panel="Recording",
        ),
    ] = None
