"""Lists of arguments without one of them."""

from collections.abc import Sequence

import libcst as cst


def without_argument(arguments: Sequence[cst.Arg], removed: cst.Arg) -> list[cst.Arg]:
    """Return arguments without one of them; the layout of the end and other comments stay."""
    position = next(at for at, one in enumerate(arguments) if one is removed)
    left = [*arguments[:position], *arguments[position + 1 :]]
    if left and position == len(left):
        left[-1] = _as_last(left[-1], removed)
    return left


def _as_last(argument: cst.Arg, removed: cst.Arg) -> cst.Arg:
    """Return an argument that ends a list as the removed one did."""
    own = argument.comma.whitespace_after if isinstance(argument.comma, cst.Comma) else None
    if isinstance(removed.comma, cst.Comma):
        end = _closing(own, removed.comma.whitespace_after)
        return argument.with_changes(comma=removed.comma.with_changes(whitespace_after=end))
    end = _closing(own, removed.whitespace_after_arg)
    return argument.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=end)


def _closing(
    own: cst.BaseParenthesizableWhitespace | None, end: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """Return the space before the closing parenthesis, with the argument's own comment."""
    if not isinstance(end, cst.ParenthesizedWhitespace):
        return end
    if isinstance(own, cst.ParenthesizedWhitespace):
        return end.with_changes(first_line=own.first_line)
    no_comment = end.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    return end.with_changes(first_line=no_comment)
