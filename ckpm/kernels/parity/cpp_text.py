"""A reader of the C++ in dispatch and instance files: statements, namespaces, aliases, plain templates.

Two generated texts, upstream's and ours, with different aliases, namespaces, layout and comments give the same
canonical tokens. Names that the text itself does not declare stay as they are written. Anything that can't be followed
(an alias with two meanings, for example) is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ckpm.kernels.parity.conditions import TRUE, Condition, conjunction, negation, parse_condition
from ckpm.kernels.parity.cpp_tokens import (
    OPEN,
    Tokens,
    after_template_head,
    closing_angle,
    closing_bracket,
    extent,
    has_operator,
    spell,
    split_arguments,
    template_parameters,
    text_error,
    tokenize,
)

Scope = tuple[str, ...]

_SCALARS = {"float", "double"}


@dataclass(frozen=True, slots=True)
class Plain:
    """A statement without its semicolon, or a preprocessor line."""

    tokens: Tokens


@dataclass(frozen=True, slots=True)
class If:
    """An if / else-if chain: (condition, body) in order; the condition of a final else is empty."""

    branches: tuple[tuple[Tokens, Tokens], ...]


@dataclass(frozen=True, slots=True)
class Braces:
    """A compound statement, or the body of a loop."""

    body: Tokens


Statement = Plain | If | Braces


def statements(tokens: Sequence[str]) -> Iterator[Statement]:
    """Yield the statements of a function body or block, in order."""
    at = 0
    while at < len(tokens):
        statement, at = _statement(tokens, at)
        if statement != Plain(()):
            yield statement


def _statement(tokens: Sequence[str], at: int) -> tuple[Statement, int]:
    if at >= len(tokens):
        raise text_error("a statement is missing at the end of a block")
    piece = tokens[at]
    if piece == "{":
        end = closing_bracket(tokens, at)
        return Braces(tuple(tokens[at + 1 : end])), end + 1
    if piece in ("for", "while", "switch"):
        _, end = _statement(tokens, closing_bracket(tokens, at + 1) + 1)
        return Braces(tuple(tokens[closing_bracket(tokens, at + 1) + 1 : end])), end
    if piece == "if":
        return _chain(tokens, at)
    if piece.startswith("#"):
        return Plain((piece,)), at + 1
    end = at
    while end < len(tokens) and tokens[end] != ";":
        end = closing_bracket(tokens, end) + 1 if tokens[end] in OPEN else end + 1
    return Plain(tuple(tokens[at:end])), end + 1


def _chain(tokens: Sequence[str], at: int) -> tuple[If, int]:
    branches = []
    while True:
        start = at + 2 if tokens[at + 1 : at + 2] == ("constexpr",) else at + 1
        end = closing_bracket(tokens, start)
        condition = tuple(tokens[start + 1 : end])
        _, after = _statement(tokens, end + 1)
        branches.append((condition, _inside(tokens[end + 1 : after])))
        at = after
        if tuple(tokens[at : at + 2]) == ("else", "if"):
            at += 1
            continue
        if tuple(tokens[at : at + 1]) == ("else",):
            _, after = _statement(tokens, at + 1)
            branches.append(((), _inside(tokens[at + 1 : after])))
            at = after
        return If(tuple(branches)), at


def _inside(tokens: Sequence[str]) -> Tokens:
    return tuple(tokens[1:-1] if tokens[0] == "{" else tokens)


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition. ``argument`` is the explicit specialisation's template argument list, else None.

    ``result`` are the tokens before the name, ``parameters`` whole declarations; ``guard`` is the preprocessor
    condition under which the definition is compiled (TRUE if always).
    """

    name: str
    argument: Tokens | None
    result: Tokens
    parameters: tuple[Tokens, ...]
    body: Tokens
    scope: Scope
    guard: Condition


@dataclass(frozen=True, slots=True)
class Template:
    """A template, whose tokens stay as they are written until it is used.

    ``parameters`` are (name, default value or ()); ``members`` the aliases and constants of a class in order;
    ``functions`` its functions by name, or the one function of a function template under ''.
    """

    parameters: tuple[tuple[str, Tokens], ...]
    members: tuple[Tokens, ...]
    functions: Mapping[str, Function]
    scope: Scope
    guard: Condition


@dataclass(slots=True)
class Program:
    """The declarations of a text. Aliases and constants are keyed by qualified name and already canonical.

    The meaning of a template's name is its qualified name, the key of ``templates``.
    """

    names: dict[Scope, Tokens] = field(default_factory=dict)
    namespaces: set[Scope] = field(default_factory=set)
    functions: list[Function] = field(default_factory=list)
    templates: dict[Tokens, Template] = field(default_factory=dict)

    def resolve(self, tokens: Sequence[str], scope: Scope, local: Mapping[str, Tokens]) -> Tokens:
        """Replace every alias and constant that is visible from ``scope`` by its meaning; drop ``typename``."""
        resolved: list[str] = []
        at = 0
        while at < len(tokens):
            piece = tokens[at]
            if piece in ("typename", "template"):
                at += 1
                continue
            if not (piece[0].isalpha() or piece[0] == "_") or (resolved and resolved[-1] in (".", "->")):
                resolved.append(piece)
                at += 1
                continue
            if len(resolved) > 1 and resolved[-1] == "::" and (resolved[-2] == ">" or resolved[-2].isidentifier()):
                resolved.append(piece)  # a member of a type that was not declared here
                at += 1
                continue
            end = at + 1
            while tuple(tokens[end : end + 1]) == ("::",) and "".join(tokens[end + 1 : end + 2]).isidentifier():
                end += 2
            path = tuple(tokens[at:end:2])
            rooted = bool(resolved) and resolved[-1] == "::"
            meaning, used = self._look_up(path, () if rooted else scope, {} if rooted else local)
            if meaning is None:
                resolved += tokens[at:end]
            else:
                if rooted:
                    resolved.pop()
                before, after = tuple(resolved[-1:]), tuple(tokens[end : end + 1])
                alone = before in ((), ("<",), (",",), ("(",)) and after in ((), (">",), (",",), (")",))
                bracketed = meaning[:1] == ("(",) and closing_bracket(meaning, 0) == len(meaning) - 1
                resolved += meaning[1:-1] if alone and bracketed else meaning
                for member in path[used:]:
                    resolved += ("::", member)
            at = end
        return tuple(resolved)

    def _look_up(self, path: Scope, scope: Scope, local: Mapping[str, Tokens]) -> tuple[Tokens | None, int]:
        """Return the meaning of the longest known start of ``path`` and the number of names in that start."""
        if path[0] in local:
            return local[path[0]], 1
        for depth in range(len(scope), -1, -1):
            here = scope[:depth]
            for length in range(1, len(path) + 1):
                name = here + path[:length]
                if name in self.names:
                    return self.names[name], length
                if name not in self.namespaces:
                    break
            else:
                return None, 0
            if length > 1:  # the first name is a namespace of this scope: outer scopes are hidden
                return None, 0
        return None, 0

    def declare(self, name: Scope, meaning: Tokens) -> None:
        """Declare a name, which must not have another meaning."""
        if self.names.setdefault(name, meaning) != meaning:
            raise text_error(f"'{'::'.join(name)}' means '{spell(self.names[name])}' and '{spell(meaning)}'")

    def declare_template(self, name: str, template: Template) -> None:
        """Declare a template. Overloads are refused."""
        meaning = tuple(piece for part in (*template.scope, name) for piece in (part, "::"))[:-1]
        if meaning in self.templates:
            raise text_error(f"there are two templates '{spell(meaning)}'")
        self.declare((*template.scope, name), meaning)
        self.templates[meaning] = template


def declaration(statement: Sequence[str]) -> tuple[str, Tokens] | None:
    """Return (name, value) of ``using NAME = VALUE`` or ``[constexpr] const TYPE NAME = VALUE``, else None.

    A floating type stays as a cast around the value, because it decides how a comparison rounds; other types of
    constants only repeat the conversion at the use. A value with an operator comes in brackets, so that it can replace
    the name.
    """
    if "=" not in statement:
        return None
    equals = statement.index("=")
    left, right = list(statement[:equals]), tuple(statement[equals + 1 :])
    if left[:1] == ["using"] and len(left) == 2:
        return left[1], right
    if not {"const", "constexpr"} & set(left) or not left[-1].isidentifier():
        return None
    if kinds := _SCALARS & set(left):
        return left[-1], (kinds.pop(), "(", *right, ")")
    return left[-1], ("(", *right, ")") if has_operator(right) else right


def read(text: str) -> Program:
    """Return the declarations of a file at namespace scope, with templates, explicit specialisations and functions."""
    return _Reader(tokenize(text)).program()


class _Reader:
    """A walk through namespace scope, with the open namespaces and preprocessor conditions."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.at = 0
        self.result = Program()
        self.scopes: list[Scope] = [()]
        self.guards: list[list[Condition]] = []

    def program(self) -> Program:
        while self.at < len(self.tokens):
            piece = self.tokens[self.at]
            if piece.startswith("#"):
                self._directive(piece)
                self.at += 1
            elif piece == "}":
                if len(self.scopes) == 1:
                    raise text_error("a '}' closes nothing")
                self.scopes.pop()
                self.at += 1
            elif piece == "namespace":
                self._open_namespace()
            elif piece == "extern" and self.tokens[self.at + 2] == "{":
                self.scopes.append(self.scopes[-1])
                self.at += 3
            else:
                self._definition()
        if self.guards or len(self.scopes) > 1:
            raise text_error("an #if or a namespace is never closed")
        return self.result

    def _open_namespace(self) -> None:
        end = self.at
        while end < len(self.tokens) and self.tokens[end] not in ("{", ";", "="):
            end += 1
        if self.tokens[end : end + 1] != ("{",):
            raise text_error(f"'{spell(self.tokens[self.at : end + 4])}' does not open a namespace")
        scope = self.scopes[-1]
        for name in self.tokens[self.at + 1 : end : 2]:
            scope = (*scope, name)
            self.result.namespaces.add(scope)
        self.scopes.append(scope)
        self.at = end + 1

    def _directive(self, line: str) -> None:
        """Read a preprocessor line. ``guards`` contains the branches of each open #if so far, the current one last."""
        word, _, rest = line[2:].partition(" ")
        if word in ("if", "ifdef", "ifndef"):
            self.guards.append([_directive_condition(word, rest)])
        elif word in ("elif", "else", "endif") and not self.guards:
            raise text_error(f"#{word} without #if")
        elif word == "elif":
            self.guards[-1].append(_directive_condition("if", rest))
        elif word == "else":
            self.guards[-1].append(TRUE)
        elif word == "endif":
            self.guards.pop()
        elif word == "define" and len(rest.split()) > 1:
            raise text_error(f"'#{word} {rest}': macros are not followed")

    def _guard(self) -> Condition:
        parts = [part for branches in self.guards for part in (*map(negation, branches[:-1]), branches[-1])]
        return conjunction(parts)

    def _definition(self) -> None:
        """Read a statement up to its semicolon, a class template, or a function with its body."""
        tokens, start = self.tokens, self.at
        head = after_template_head(tokens, start)
        if head > start and tokens[head : head + 1] in (("struct",), ("class",)):
            self.at = self._class_template(start, head)
            return
        parameters, end = extent(tokens, start)
        if tokens[end : end + 1] == ("{",):
            close = closing_bracket(tokens, end)
            function = self._function(tokens[start:parameters], tokens[parameters:end], tokens[end + 1 : close])
            self.result.functions.append(function)
            if function.argument is None and (names := template_parameters(tokens[start:head])):
                template = Template(names, (), {"": function}, function.scope, function.guard)
                self.result.declare_template(function.name, template)
            self.at = close + 1
            return
        statement = tokens[start:end]
        if statement[:1] == ("typedef",) or (head > start and "using" in statement):
            raise text_error(f"'{spell(statement)[:80]}': only plain aliases are followed")
        declared = declaration(statement)
        scope = self.scopes[-1]
        if declared is not None:
            self.result.declare((*scope, declared[0]), self.result.resolve(declared[1], scope, {}))
        self.at = end + 1

    def _class_template(self, start: int, head: int) -> int:
        """Declare a class template if it has a body; return the index after it."""
        tokens, brace = self.tokens, head + 2
        if tokens[brace : brace + 1] == (";",):
            return brace + 1
        names = template_parameters(tokens[start:head])
        end = closing_bracket(tokens, brace) if tokens[brace : brace + 1] == ("{",) else -1
        if not names or end < 0 or tokens[end + 1 : end + 2] != (";",):
            raise text_error(f"'{spell(tokens[start : brace + 4])[:120]}' is not a plain class template")
        members: list[Tokens] = []
        functions: dict[str, Function] = {}
        body, at = tokens[brace + 1 : end], 0
        while at < len(body):
            parameters, after = extent(body, at)
            member = body[at:after]
            if body[after : after + 1] == ("{",):
                close = closing_bracket(body, after)
                function = self._function(body[at:parameters], body[parameters:after], body[after + 1 : close])
                if "template" in function.result or functions.setdefault(function.name, function) is not function:
                    raise text_error(f"'{spell(member)[:80]}' is a template or an overload in a class template")
                at = close + 1
            elif declaration(member) is None:
                raise text_error(f"'{spell(member)[:80]}' in a class template is not an alias, constant or function")
            else:
                members.append(member)
                at = after + 1
        template = Template(names, tuple(members), functions, self.scopes[-1], self._guard())
        self.result.declare_template(tokens[head + 1], template)
        return end + 2

    def _function(self, head: Tokens, parameters: Tokens, body: Tokens) -> Function:
        if not head:
            raise text_error(f"'{spell(parameters)}' follows no name of a function")
        argument = None
        name = len(head) - 1
        if head[-1] == ">":
            opening = [at for at in range(len(head)) if head[at] == "<" and closing_angle(head, at) == len(head) - 1]
            if not opening or opening[0] == 0:
                raise text_error(f"'{spell(head)[:80]}' is not the name of a function")
            name = opening[0]
            argument = head[name + 1 : -1]
            name -= 1
        declared = tuple(split_arguments(parameters[1 : closing_bracket(parameters, 0)]))
        return Function(head[name], argument, head[:name], declared, body, self.scopes[-1], self._guard())


def _directive_condition(word: str, rest: str) -> Condition:
    if word == "if":
        return parse_condition(tokenize(rest))
    condition = parse_condition(("defined", "(", rest, ")"))
    return condition if word == "ifdef" else negation(condition)
