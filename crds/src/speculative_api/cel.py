"""PURE: evaluates the part of CEL that our own validation rules are written in.

The API server evaluates the rules of the CRD itself; this is for `lint`, which
has none. It covers what one-line rules need: literals, lists, field access,
`has`, `size`, `matches`, `startsWith`, `endsWith`, `contains`, `all`, `exists`,
and the usual operators. Anything else is `Unsupported`, never a guess.

Source: the CEL language definition, https://github.com/google/cel-spec.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<mark>\|\||&&|==|!=|<=|>=|[-+*%<>!?:.,()\[\]]))"
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "in": lambda a, b: a in b,
}
_SUMS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
}
_PRODUCTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "*": lambda a, b: a * b,
    # CEL's remainder has the sign of the dividend, Python's that of the divisor.
    "%": lambda a, b: int(math.fmod(a, b)),
}
_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "size": lambda value: len(value),
    "matches": lambda value, pattern: re.search(pattern, value) is not None,
    "startsWith": lambda value, start: value.startswith(start),
    "endsWith": lambda value, end: value.endswith(end),
    "contains": lambda value, part: part in value,
}
_MACROS: Final[dict[str, Callable[[Any], bool]]] = {"all": all, "exists": any}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


class Unsupported(ValueError):
    """A rule uses something that is not covered here; the message says what."""


def holds(rule: str, value: Any) -> bool:
    """Whether a rule holds for `self`; a field that is absent makes it fail, as in CEL.

    Raises:
        Unsupported: the rule is beyond what is covered here.
    """
    try:
        return outcome(rule, value)
    except (KeyError, TypeError, IndexError):
        return False


def outcome(rule: str, value: Any) -> bool:
    """What a rule comes to for `self`.

    Raises:
        KeyError: it asks an absent field; an API server refuses the object for that.
        TypeError: it compares what can't be compared.
        IndexError: it asks a list for more than it has.
        Unsupported: the rule is beyond what is covered here.
    """
    return bool(_Parser(rule).whole()({"self": value}))


def _tokens(rule: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while position < len(rule.rstrip()):
        match = _TOKEN.match(rule, position)
        if match is None:
            raise Unsupported(f"{rule[position:].strip()!r} in the rule {rule!r}")
        kind = match.lastgroup or ""
        found.append((kind, match[kind]))
        position = match.end()
    return found


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._tokens = _tokens(rule)
        self._at = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._at < len(self._tokens):
            raise self._unsupported()
        return node

    def _unsupported(self) -> Unsupported:
        rest = " ".join(text for _, text in self._tokens[self._at :]) or "its end"
        return Unsupported(f"{rest!r} in the rule {self._rule!r}")

    def _peek(self) -> str:
        """The next mark or word; empty for a literal and at the end."""
        if self._at == len(self._tokens):
            return ""
        kind, text = self._tokens[self._at]
        return text if kind in ("mark", "name") else ""

    def _take(self, *texts: str) -> str:
        """The next token if it is one of these, else empty."""
        found = self._peek()
        if found and found in texts:
            self._at += 1
            return found
        return ""

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unsupported()

    def _name(self) -> str:
        if self._at == len(self._tokens) or self._tokens[self._at][0] != "name":
            raise self._unsupported()
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _choice(self) -> Node:
        condition = self._either()
        if not self._take("?"):
            return condition
        first = self._either()
        self._expect(":")
        second = self._choice()
        return lambda scope: first(scope) if condition(scope) else second(scope)

    def _either(self) -> Node:
        left = self._both()
        while self._take("||"):
            left = _or(left, self._both())
        return left

    def _both(self) -> Node:
        left = self._comparison()
        while self._take("&&"):
            left = _and(left, self._comparison())
        return left

    def _comparison(self) -> Node:
        left = self._sum()
        while sign := self._take(*_COMPARISONS):
            left = _joined(_COMPARISONS[sign], left, self._sum())
        return left

    def _sum(self) -> Node:
        left = self._product()
        while sign := self._take(*_SUMS):
            left = _joined(_SUMS[sign], left, self._product())
        return left

    def _product(self) -> Node:
        left = self._unary()
        while sign := self._take(*_PRODUCTS):
            left = _joined(_PRODUCTS[sign], left, self._unary())
        return left

    def _unary(self) -> Node:
        if self._take("!"):
            inner = self._unary()
            return lambda scope: not inner(scope)
        if self._take("-"):
            inner = self._unary()
            return lambda scope: -inner(scope)
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._take("."):
                name = self._name()
                node = self._call(node, name) if self._take("(") else _field(node, name)
            elif self._take("["):
                index = self._choice()
                self._expect("]")
                node = _joined(lambda value, key: value[key], node, index)
            else:
                return node

    def _call(self, node: Node, name: str) -> Node:
        if name in _MACROS:
            variable = self._name()
            self._expect(",")
            body = self._choice()
            self._expect(")")
            combine = _MACROS[name]
            return lambda scope: combine(body({**scope, variable: item}) for item in node(scope))
        if name not in _METHODS:
            raise Unsupported(f"{name}() in the rule {self._rule!r}")
        arguments, method = self._listed(")"), _METHODS[name]
        return lambda scope: method(node(scope), *(argument(scope) for argument in arguments))

    def _listed(self, end: str) -> Sequence[Node]:
        found: list[Node] = []
        while not self._take(end):
            found.append(self._choice())
            if self._peek() != end:
                self._expect(",")
        return found

    def _primary(self) -> Node:
        if self._take("("):
            inner = self._choice()
            self._expect(")")
            return inner
        if self._take("["):
            items = self._listed("]")
            return lambda scope: [item(scope) for item in items]
        if self._at == len(self._tokens):
            raise self._unsupported()
        kind, text = self._tokens[self._at]
        if kind == "mark":
            raise self._unsupported()
        self._at += 1
        if kind == "number":
            return lambda scope: int(text)
        if kind == "text":
            plain = re.sub(r"\\(.)", r"\1", text[1:-1])
            return lambda scope: plain
        return self._word(text)

    def _word(self, text: str) -> Node:
        if text in _CONSTANTS:
            return lambda scope: _CONSTANTS[text]
        if not self._take("("):
            return lambda scope: scope[text]
        if text == "size":
            (value,) = self._listed(")")
            return lambda scope: len(value(scope))
        if text != "has":
            raise Unsupported(f"{text}() in the rule {self._rule!r}")
        return self._has()

    def _has(self) -> Node:
        """`has(a.b.c)`: whether c is there; a and b have to be."""
        node = self._primary()
        self._expect(".")
        name = self._name()
        while self._take("."):
            node, name = _field(node, name), self._name()
        self._expect(")")
        return lambda scope: node(scope).get(name) is not None


def _field(node: Node, name: str) -> Node:
    return lambda scope: node(scope)[name]


def _joined(operation: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    return lambda scope: operation(left(scope), right(scope))


def _or(left: Node, right: Node) -> Node:
    return lambda scope: left(scope) or right(scope)


def _and(left: Node, right: Node) -> Node:
    return lambda scope: left(scope) and right(scope)
