"""Facts that rules derive from the source around a line, and from the graph."""

import ast
import re
from collections.abc import Iterable, Iterator
from keyword import iskeyword
from typing import NamedTuple

from gradscope.recording.evidence.training import StatementRecord
from gradscope.recording.records import NodeRecord, Site
from gradscope.rules.context import RuleContext

NO_INPUT = "a reentrant checkpoint gives no gradient where its input needs none"


def remedy_of_reentrant(site: Site | None) -> str:
    """Return what to do about one, by the line that calls it."""
    if site is not None and site.is_installed:
        return (
            "give it use_reentrant=False; transformers by gradient_checkpointing_kwargs="
            '{"use_reentrant": False}'
        )
    return "give it use_reentrant=False"


_TOKEN = re.compile(
    r"""
    (?P<comment> \#[^\n]* )
  | (?P<string> [bfrtuBFRTU]{0,2} (?:
        \"\"\" (?: \\. | [^\\] )*? \"\"\" | \'\'\' (?: \\. | [^\\] )*? \'\'\'
      | " (?: \\. | [^"\\\n] )* " | ' (?: \\. | [^'\\\n] )* '
    ) )
  | (?P<number> 0[xXbBoO]\w+ | (?: \d[\d_]*\.?[\d_]* | \.\d[\d_]* ) (?: [eE][+-]?\d+ )? [jJ]? )
  | (?P<name> \w+ )
  | (?P<sign> [^\s\\] )
    """,
    re.VERBOSE | re.DOTALL,
)

_CLOSING = frozenset(")]}")


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def ends_operand(self) -> bool:
        """Whether an index or a binary operator may follow."""
        if self.kind == "sign":
            return self.text in _CLOSING
        return self.kind != "name" or not iskeyword(self.text)


def plain_source(text: str) -> str:
    """Return code without formatting, comments, and the values of its numbers.

    White space, line breaks, parentheses, the kind of quotes and trailing commas do not count. A
    number says how much and becomes 0, but inside of an index it says which, and stays. `text` may
    be any part of a file, as one line of a statement that goes on.
    """
    # Python's tokenizer is unsuitable: its tokens differ between versions, and it needs whole
    # statements.
    tokens = _without_trailing_commas(_without_sizes(_tokens(text)))
    return " ".join(token.text for token in tokens if token.text not in ("(", ")"))


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "string":
            # A formatter may change quotes and the case of prefixes.
            yield _Token(kind, repr(match[0].lstrip("bfrtuBFRTU").strip("\"'")))
        elif kind != "comment":
            yield _Token(kind, match[0])


def _without_sizes(tokens: Iterable[_Token]) -> list[_Token]:
    """Return the tokens, numbers outside of indices as 0, without a sign."""
    kept: list[_Token] = []
    open_indices: list[bool] = []
    for token in tokens:
        if token.kind == "number" and not any(open_indices):
            if _is_signed(kept):
                kept.pop()
            token = _Token("number", "0")
        elif token.text in ("(", "[", "{"):
            # A bracket behind an operand is an index; elsewhere it opens a list.
            open_indices.append(token.text == "[" and bool(kept) and kept[-1].ends_operand)
        elif token.text in _CLOSING and open_indices:
            open_indices.pop()
        kept.append(token)
    return kept


def _is_signed(before: list[_Token]) -> bool:
    """Return whether the text before a number ends in a sign rather than a subtraction."""
    if not before or before[-1].text not in ("-", "+"):
        return False
    return len(before) < 2 or not before[-2].ends_operand


def _without_trailing_commas(tokens: Iterable[_Token]) -> list[_Token]:
    kept: list[_Token] = []
    for token in tokens:
        if token.text in _CLOSING and kept and kept[-1].text == ",":
            kept.pop()
        kept.append(token)
    return kept


def statement_texts(context: RuleContext, site: Site) -> Iterator[str]:
    """Yield the line of a site, and the text of each statement of several lines around it."""
    yield site.source
    for record in context.recording.evidence_of(StatementRecord):
        if record.file == site.file and record.first <= site.line <= record.last:
            yield record.text


def line_of(context: RuleContext, node: NodeRecord) -> int | None:
    """Return the line of an operation, or the one that made its layer.

    A model of torch's own layers alone has no line of the user's in its forward.
    """
    if node.site is not None or node.module_call is None:
        return node.site
    modules = context.recording.modules
    module = modules[context.recording.calls[node.module_call].module]
    # torch makes some modules in its own files, as those within `nn.Transformer`; the user made the
    # module around them.
    while module.site is None and module.parent is not None:
        module = modules[module.parent]
    return module.site


def parameters_before(context: RuleContext, nodes: list[int]) -> tuple[int, ...]:
    """Return the parameters whose gradient comes through one of some operations."""
    return tuple(sorted(context.parameters_behind(nodes)))


def weight_follows(context: RuleContext, node: int) -> bool:
    """Return whether an operation with a parameter of its own uses an operation's result.

    If not, it belongs to the loss, or is the output that the loss is taken of.
    """
    waiting, seen = list(context.users.get(node, ())), {node}
    while waiting:
        user = waiting.pop()
        if user in seen:
            continue
        seen.add(user)
        if _takes_parameter(context, user):
            return True
        waiting += context.users.get(user, ())
    return False


def is_in_model(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a module of the model made a node."""
    recording = context.recording
    if node.module_call is None:
        return False
    return recording.modules[recording.calls[node.module_call].module].in_model


def _takes_parameter(context: RuleContext, node: int) -> bool:
    # A weight often comes transposed, as `F.linear` does it.
    return any(context.behind_views(one).kind == "parameter" for one in context.inputs(node))


def loss_line(context: RuleContext, first: int = 0) -> Site | None:
    """Return the line of the last operation of the loss in a captured step, from a step on."""
    for captured in context.recording.captured_steps:
        if captured.step < first:
            continue
        nodes, sites = captured.recording.nodes, captured.recording.sites
        # Nodes are recorded from the loss on: the first one is its last operation.
        if nodes and nodes[0].site is not None:
            return sites[nodes[0].site]
    return None


def turned_by(site: Site | None) -> str | None:
    """Return the term that a line subtracts, and adds again detached, next to another term.

    The value is that of the other term alone, as of a straight-through estimator, whose gradient
    goes to the soft term: with the opposite sign here.
    """
    try:
        tree = ast.parse("" if site is None else site.source)
    # A line of a statement of several lines may be no code by itself.
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        terms = list(_terms(node, 1)) if isinstance(node, ast.BinOp) else []
        added = {ast.dump(one) for term, sign in terms if sign > 0 and (one := _detached(term))}
        names = [ast.unparse(term) for term, sign in terms if sign < 0 and ast.dump(term) in added]
        # Of two terms, `x.detach() - x` is always zero, and no estimator.
        if names and len(terms) > 2:
            return names[0]
    return None


def _terms(node: ast.expr, sign: int) -> Iterator[tuple[ast.expr, int]]:
    """Yield the terms of a sum with their signs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign if isinstance(node.op, ast.Add) else -sign)
    else:
        yield node, sign


def _detached(term: ast.expr) -> ast.expr | None:
    """Return the argument of a term's detach, None without one."""
    if isinstance(term, ast.Call) and not term.args and isinstance(term.func, ast.Attribute):
        return term.func.value if term.func.attr == "detach" else None
    is_data = isinstance(term, ast.Attribute) and term.attr == "data"
    return term.value if is_data and isinstance(term, ast.Attribute) else None
