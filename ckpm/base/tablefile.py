"""Read YAML tables as declared records: every error has the file, the line and the dotted path of the field.

A table is loaded as a tree of :class:`Field`. Each field has its file and line, also after a child dialect was laid
over its parent. :func:`decode` makes a :class:`Record` of the tree.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import yaml
from msgspec import inspect

from .bounded import LARGEST_TABLE, BoundsError, check_number, read_text
from .display import one_line
from .errors import TableError, did_you_mean

T = TypeVar("T")
R = TypeVar("R", bound="Record")

_DEEPEST = 64  # levels; the deepest table of ours has 8
_MOST_VALUES = 200_000  # of a table; an alias counts as all its values
_LONGEST = 1000  # characters of an error message: names may be as long as a file
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a table: a scalar, a list of fields, or a mapping of names to fields."""

    value: Any
    file: Path
    line: int
    path: str

    def fail(self, message: str) -> TableError:
        """Return the error for this field, which the caller raises."""
        return _complaint(self.file, self.line, f"{self.path or 'top level'}: {message}")

    def fail_word(self, complaint: str, word: object, names: Iterable[object]) -> TableError:
        """Return the error for an unknown word, with the known ones and the nearest."""
        return self.fail(f"{complaint}; known: {_known(word, names)}")

    def _as_type(self, kind: type[T], what: str) -> T:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"must be {what}, not {describe(self.value)}")
        return self.value

    def text(self) -> str:
        return self._as_type(str, "text")

    def integer(self) -> int:
        return self._as_type(int, "a whole number")

    def boolean(self) -> bool:
        return self._as_type(bool, "true or false")

    def items(self) -> list[Field]:
        return self._as_type(list, "a list")

    def mapping(self) -> dict[str, Field]:
        return self._as_type(dict, "a mapping")

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def get(self, name: str) -> Field:
        """Return the field ``name`` of this mapping, which must have it."""
        fields = self.mapping()
        if name not in fields:
            raise self.fail(f"field '{name}' is missing; it has {', '.join(fields) or 'no field'}")
        return fields[name]

    def find(self, name: str) -> Field | None:
        return self.mapping().get(name)

    def map(self, read: Callable[[Field], T]) -> dict[str, T]:
        return {name: read(field) for name, field in self.mapping().items()}

    def allow(self, names: Iterable[str]) -> None:
        """Refuse unknown names: a mistyped field must not be ignored."""
        allowed = list(names)
        for name, field in self.mapping().items():
            if name not in allowed:
                raise field.fail(f"unknown field; known here: {_known(name, allowed)}")


def _known(word: object, names: Iterable[object]) -> str:
    """The end of a complaint about a word: the known words, and the nearest."""
    allowed = [str(name) for name in names]
    return f"{', '.join(allowed)}{did_you_mean(str(word), allowed).removesuffix('.')}"


def load(file: Path) -> Field:
    """Read one YAML file. Raises TableError if it is missing, or no mapping, or repeats a name."""
    try:
        text = read_text(file, LARGEST_TABLE)
    except (OSError, ValueError) as error:
        raise TableError(f"{file}:1: the table can't be read: {error}. Restore the file.") from error
    if file.suffix == ".json":
        text = text.replace("\t", " ")  # between JSON's tokens a tab is a space, which YAML doesn't allow everywhere
    return _table(text, file)


@functools.lru_cache(maxsize=256)  # the tables of a parent are read for each of its dialects
def _table(text: str, file: Path) -> Field:
    """The table in the text of a file. It is shared and never changed: :func:`overlay` makes new mappings."""
    no_table = "not valid JSON" if file.suffix == ".json" else "not valid YAML"
    try:
        _check_bounds(text)
        node = _compose(text)
        root = _field(node, file, "") if node else None
    except BoundsError as error:
        raise _complaint(file, error.line, f"not a table: {error}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        raise _complaint(file, line, f"{no_table}: {error.problem}. Fix that line.") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _complaint(file, line, f"{no_table}: {error.reason}. Fix that line.") from error
    except RecursionError:
        raise TableError(f"{file}:1: not a table: nested without end (an anchor that holds itself?).") from None
    finally:
        _CONSTRUCTOR.constructed_objects.clear()
    if root is None:
        raise TableError(f"{file}:1: the table is empty.")
    root.mapping()
    return root


def _check_bounds(text: str) -> None:
    """Check nesting and number of values by the text's events, which cost little at any depth. Raises BoundsError.

    Malformed YAML passes: the parser reports its mistakes.
    """
    count, depth = 0, 0
    anchored: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    for event in _events(text):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            count += anchored.get(str(event.anchor), 0)
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            anchored |= {event.anchor: 1} if event.anchor else {}
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            count, depth = count + 1, depth + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            anchored |= {anchor: count - before} if anchor else {}
            depth -= 1
        if depth > _DEEPEST:
            raise BoundsError(f"nested deeper than {_DEEPEST} levels", line)
        if count > _MOST_VALUES:
            raise BoundsError(f"more than {_MOST_VALUES:,} values, with what aliases stand for", line)


def _events(text: str) -> Iterator[yaml.Event]:
    with contextlib.suppress(yaml.YAMLError):
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _compose(text: str) -> yaml.Node | None:
    """Parse with libyaml, which is ten times faster, if PyYAML has it; the Python parser describes mistakes."""
    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


def overlay(parent: Field, child: Field) -> Field:
    """Lay ``child`` over ``parent``: mappings merge by name, other values are replaced, null removes a name.

    A list is changed by a mapping with ``add``, ``drop`` or both: values after its end, and values that it must have.
    """
    if isinstance(parent.value, list) and isinstance(child.value, dict):
        return _edit_list(parent, child)
    if not (isinstance(parent.value, dict) and isinstance(child.value, dict)):
        return child
    merged: dict[str, Field] = dict(parent.value)
    for name, field in child.value.items():
        if field.value is None:
            merged.pop(name, None)
        else:
            merged[name] = overlay(merged.get(name, Field({}, field.file, field.line, field.path)), field)
    return Field(merged, child.file, child.line, child.path)


def _edit_list(parent: Field, child: Field) -> Field:
    child.allow(("add", "drop"))
    added, dropped = (edit.items() if (edit := child.find(name)) else [] for name in ("add", "drop"))
    kept = list(parent.value)
    for value in dropped:
        index = next((index for index, item in enumerate(kept) if plain(item) == plain(value)), None)
        if index is None:
            raise value.fail(f"{plain(value)!r} is not in the list of {parent.file}:{parent.line}")
        del kept[index]
    return Field([*kept, *added], child.file, child.line, child.path)


def _complaint(file: Path, line: int, message: str) -> TableError:
    return TableError(f"{file}:{line}: {one_line(message, _LONGEST)}")


def _field(node: yaml.Node, file: Path, path: str, named_at: int | None = None) -> Field:
    """The field of a node. A mapping that has a name is at the line of its name."""
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        line = named_at or line
        fields: dict[str, Field] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                at = name_node.start_mark.line + 1
                raise _complaint(file, at, f"{path}: a name must be a word, no collection.")
            name = str(name_node.value)
            here = f"{path}.{name}" if path else name
            if name in fields:
                raise _complaint(file, name_node.start_mark.line + 1, f"{here}: written twice. Keep one.")
            fields[name] = _field(value_node, file, here, name_node.start_mark.line + 1)
        return Field(fields, file, line, path)
    if isinstance(node, yaml.SequenceNode):
        return Field([_field(item, file, f"{path}[{i}]") for i, item in enumerate(node.value)], file, line, path)
    if node.tag == "tag:yaml.org,2002:bool" and node.value not in ("true", "false"):
        return Field(node.value, file, line, path)  # YAML 1.1 reads the axis value `no` as a bool
    try:
        if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
            check_number(node.value)
        value = _CONSTRUCTOR.construct_object(node)
    except (ValueError, yaml.YAMLError) as error:
        raise _complaint(file, line, f"{path}: not a value: {error}") from error
    except (LookupError, AttributeError) as error:  # PyYAML's, for text that doesn't fit its tag
        raise _complaint(file, line, f"{path}: not a value: {node.value!r} does not fit {node.tag}") from error
    return Field(value, file, line, path)


def describe(value: object) -> str:
    """A value as error messages describe it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "empty" if value is None else f"{value!r}"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A declared record of a table: its fields, their types and bounds; unknown fields are refused."""


Words = Annotated[str, msgspec.Meta(min_length=1)] | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Later = Annotated[str, msgspec.Meta(max_length=0)]  # set by the reader of a table, which doesn't contain the field


def word_list(value: str | Iterable[str]) -> tuple[str, ...]:
    """The words of a field that has one word or a list."""
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """A decoded table. ``root`` has the file and line of each value, for checks that need more than one field."""

    record: T
    root: Field

    def at(self, *path: str | int) -> Field:
        """The field at a path of names and positions."""
        field = self.root
        for part in path:
            field = field.value[part]
        return field

    def fail(self, message: str, *path: str | int) -> TableError:
        """Return the error for the field at a path, which the caller raises."""
        return self.at(*path).fail(message)

    def demand_known(self, value: str | Iterable[str], vocabulary: Iterable[str], *path: str | int) -> None:
        """Refuse an unknown word of the field at a path."""
        listed = list(vocabulary)
        for word in word_list(value):
            if word not in listed:
                raise self.at(*path).fail_word(f"unknown '{word}'", word, listed)


def add_names(records: Mapping[str, R], field: str = "name") -> dict[str, R]:
    """The records of a mapping with their names as ``field``, whose type is Later."""
    return {name: msgspec.structs.replace(record, **{field: name}) for name, record in records.items()}


def read_table(file: Path, kind: type[T]) -> Table[T]:
    """Read a YAML or JSON file as a declared record. Raises TableError, also for a wrong field."""
    return decode(load(file), kind)


def decode(root: Field, kind: type[T]) -> Table[T]:
    """Decode a loaded table, which may be laid over others. Raises TableError."""
    values = plain(root)
    try:
        return Table(msgspec.convert(values, kind, str_keys=True), root)
    except msgspec.ValidationError:
        path, message = explain(values, kind)
        raise Table(None, root).fail(message, *path) from None


def plain(field: Field) -> Any:
    """The values of a field without their files and lines."""
    if isinstance(field.value, dict):
        return {name: plain(member) for name, member in field.value.items()}
    if isinstance(field.value, list):
        return [plain(item) for item in field.value]
    return field.value


Misfit = tuple[list[str | int], str]
_BOUNDS = {"ge": (">=", operator.ge), "gt": (">", operator.gt), "le": ("<=", operator.le), "lt": ("<", operator.lt)}
_RECORDS = (inspect.StructType, inspect.DataclassType)
# What the kinds of a record take, and its words, in the order in which a message lists them.
_KINDS: Mapping[type[inspect.Type], tuple[tuple[type, ...], str]] = {
    inspect.BoolType: ((bool,), "true or false"),
    inspect.IntType: ((int,), "a whole number"),
    inspect.FloatType: ((int, float), "a number"),
    inspect.StrType: ((str,), "text"),
    inspect.DateType: ((datetime.date, str), "a date such as 2027-06-30"),
    **dict.fromkeys((inspect.TupleType, inspect.VarTupleType, inspect.ListType), ((list,), "a list")),
    **dict.fromkeys((inspect.DictType, inspect.StructType, inspect.DataclassType), ((dict,), "a mapping")),
    inspect.NoneType: ((type(None),), "empty"),
}


def explain(values: Any, kind: type) -> Misfit:
    """Return the path and the reason of the first value for which msgspec refuses to convert ``values``."""
    return _misfit(values, inspect.type_info(kind)) or ([], "does not fit")


def _misfit(value: Any, kind: inspect.Type) -> Misfit | None:
    """The path and reason of the first value that doesn't fit; None if all fit."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if any(isinstance(choice, inspect.AnyType) for choice in kinds):
        return None
    fitting = next((choice for choice in kinds if type(value) in _KINDS[_class_of(choice)][0]), None)
    if fitting is None:
        wanted = dict.fromkeys(text for listed, (_, text) in _KINDS.items() if listed in map(_class_of, kinds))
        return [], f"must be {' or '.join(wanted)}" + ("" if isinstance(value, dict) else f", not {describe(value)}")
    if reason := _against(value, fitting):
        return [], reason
    if isinstance(fitting, inspect.DictType):
        numbered = isinstance(fitting.key_type, inspect.IntType)
        for key in value:
            if misfit := _misfit(int(key) if numbered and key.isdecimal() else key, fitting.key_type):
                return [key], misfit[1]
    for part, member, member_kind in _members(value, fitting):
        if member_kind is None:
            return [part], f"unknown field; known here: {_known(part, _fields(fitting))}"
        if misfit := _misfit(member, member_kind):
            return [part, *misfit[0]], misfit[1]
    if missing := [name for name, field in _fields(fitting).items() if field.required and name not in value]:
        return [], f"field '{missing[0]}' is missing; it has {', '.join(value) or 'no field'}"
    if isinstance(fitting, _RECORDS):
        try:
            msgspec.convert(value, fitting.cls, str_keys=True)
        except msgspec.ValidationError as error:  # a record's own check of its fields together
            return [], str(error)
    return None


def _class_of(kind: inspect.Type) -> type[inspect.Type]:
    """The class of a kind; of a choice of words or numbers the class of these."""
    if isinstance(kind, inspect.LiteralType):
        return inspect.IntType if isinstance(kind.values[0], int) else inspect.StrType
    return type(kind)


def _against(value: Any, kind: inspect.Type) -> str:
    """The reason against a value of the right kind without its members; "" if there is none."""
    if isinstance(kind, inspect.LiteralType) and value not in kind.values:
        return f"unknown word '{value}'; known here: {_known(value, kind.values)}"
    if isinstance(kind, inspect.DateType) and isinstance(value, str) and not _is_date(value):
        return f"must be {_KINDS[inspect.DateType][1]}"
    if getattr(kind, "min_length", None) and not value:
        return "is empty"
    if isinstance(kind, inspect.TupleType) and len(value) != len(kind.item_types):
        return f"must be a list of length {len(kind.item_types)}, got {len(value)}"
    if isinstance(kind, inspect.StrType) and kind.pattern and not re.search(kind.pattern, value):
        return f"must be text matching regex {kind.pattern!r}"
    for name, (sign, holds) in _BOUNDS.items():
        bound = getattr(kind, name, None)
        if bound is not None and not holds(value, bound):  # NaN meets none
            return f"must be {_KINDS[_class_of(kind)][1]} {sign} {bound}"
    return ""


def _is_date(text: str) -> bool:
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert(text, datetime.date)
        return True
    return False


def _fields(kind: inspect.Type) -> dict[str, inspect.Field]:
    """The fields of a record by name, without those that the reader of a table sets (Later)."""
    fields = kind.fields if isinstance(kind, _RECORDS) else ()
    return {field.encode_name: field for field in fields if getattr(field.type, "max_length", None) != 0}


def _members(value: Any, kind: inspect.Type) -> Iterator[tuple[str | int, Any, inspect.Type | None]]:
    """The members of a mapping or list: name or position, value, kind; None for a name that a table's record lacks."""
    if isinstance(kind, inspect.DictType):
        yield from ((name, member, kind.value_type) for name, member in value.items())
    elif isinstance(kind, inspect.TupleType):
        yield from zip(range(len(value)), value, kind.item_types, strict=True)
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
        yield from ((at, item, kind.item_type) for at, item in enumerate(value))
    elif isinstance(kind, _RECORDS):
        fields = _fields(kind)
        for name, member in value.items():
            if name in fields or (isinstance(kind, inspect.StructType) and kind.forbid_unknown_fields):
                yield name, member, fields[name].type if name in fields else None
