"""Options of the commands that fix findings."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.declaration import Option

NEEDED = "needs libcst, which is not installed"
INSTALL = "pip install 'gradscope-torch[fix]'"
PANEL = "Fixes"

UnsafeFixesOption = Annotated[
    bool,
    Option(help="Include edits that change what the program is meant to compute.", panel=PANEL),
]
FixOnlyOption = Annotated[
    list[str] | None,
    Option(metavar="RULE", help="Fix only findings of these rules, such as GS7.", panel=PANEL),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOptions:
    """Which fixes are proposed, and whether they are written."""

    diff: Annotated[
        bool,
        Option(
            help="Show edits that fix findings, and the result of running the edited program.",
            panel=PANEL,
        ),
    ] = False
    fix: Annotated[
        bool,
        Option(help="Write the safe edits whose result is verified to the files.", panel=PANEL),
    ] = False
    unsafe_fixes: UnsafeFixesOption = False
    fix_only: FixOnlyOption = None

    @property
    def is_wanted(self) -> bool:
        """Whether fixes are asked for."""
        return self.diff or self.fix

    def check(self, *, runs_targets: bool = True) -> None:
        """Check that the options fit together.

        Args:
            runs_targets: Whether the command runs targets only.

        Raises:
            GradscopeError: They do not.
        """
        if self.diff and self.fix:
            raise GradscopeError("--diff writes nothing, but --fix does", help="remove one of them")
        for name, given in (("unsafe-fixes", self.unsafe_fixes), ("fix-only", self.fix_only)):
            if given and not self.is_wanted:
                raise GradscopeError(f"--{name} needs --diff or --fix", help="add --diff")
        if self.fix_only:
            from gradscope.rules.selection import parsed_selectors, rules_named  # takes a while

            for selector in parsed_selectors(self.fix_only):
                rules_named(selector)
        if self.is_wanted and not runs_targets:
            raise GradscopeError(
                "a fix is tried by running the edited target, and a recording cannot be run",
                help="name the target",
            )

    def usable(self, tell: Callable[[str], None], *, runs_targets: bool = True) -> "FixOptions":
        """Return the options if edits can be made, otherwise those that ask for none.

        Args:
            tell: Takes the line that says what to install.
            runs_targets: Whether the command runs targets only.

        Raises:
            GradscopeError: The options do not fit together.
        """
        self.check(runs_targets=runs_targets)
        if not self.is_wanted or can_edit():
            return self
        tell(f"{'--diff' if self.diff else '--fix'} {NEEDED}: {INSTALL}")
        return FixOptions()


def can_edit() -> bool:
    """Return whether the library that edits are made with is installed."""
    return find_spec("libcst") is not None
