"""Enumerate all keys of a family: the product of its loops without the keys that rules and receipt exclude.

Keys are in upstream's order of emission. The product grows loop by loop, and a rule is applied as soon as its last
field is bound. The cost then follows the number of kernels, not of combinations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import compress, repeat
from operator import itemgetter
from typing import Any

from ckpm.matrix.families import REQUEST_FIELDS, Axis, Constraint, Family, Pipelines, Value, fits
from ckpm.matrix.keys import KEY_FIELDS, Key
from ckpm.matrix.names import writer
from ckpm.matrix.rule import Rule, broken

Partial = tuple[Any, ...]


def enumerate_keys(family: Family, *, arch: str, receipt: int = 0, mask_impl: str = "simplified") -> list[Key]:
    """The keys of a family for one arch and receipt, in the order in which upstream emits and dispatches them.

    A name that is emitted twice is listed once, at its first position. An arch without kernels has an empty list, and
    ``family.absent`` has the reason.
    """
    traits = family.archs.get(arch, ())
    return [key for trait in traits for key in _keys_of(family, trait, receipt, mask_impl)]


@functools.lru_cache(maxsize=16)  # archs of one trait have the same kernels, and so have upstreams of one dialect
def _keys_of(family: Family, trait: str, receipt: int, mask_impl: str) -> tuple[Key, ...]:
    fields, names, partials = _bound(family, trait, receipt, mask_impl)
    columns = dict(zip(fields, zip(*partials, strict=True), strict=False))
    key_columns = {name: column for name, column in columns.items() if name != "mask_impl" or family.masks}
    return tuple(_keys({**key_columns, "name": names, "family": repeat(family.name)}, len(names)))


def enumerate_names(family: Family, *, arch: str, receipt: int = 0, mask_impl: str = "simplified") -> list[str]:
    """The names of :func:`enumerate_keys`, in half its time."""
    return [name for trait in family.archs.get(arch, ()) for name in _bound(family, trait, receipt, mask_impl)[1]]


def _bound(
    family: Family, trait: str, receipt: int, mask_impl: str
) -> tuple[tuple[str, ...], list[str], list[Partial]]:
    """The bound fields, and the name and these fields' values of each kernel."""
    filters = _Filters(family, family.constraints(receipt))
    outer = filters.due((), REQUEST_FIELDS, [(trait, receipt, mask_impl)])
    bound: tuple[str, ...] = REQUEST_FIELDS
    for axis in family.axes:
        outer, bound = _loop(family, filters, outer, bound, axis, mask_impl)
    partials = _inner(family, filters, outer, bound, mask_impl) if family.pipelines else outer
    fields = (*REQUEST_FIELDS, *family.fields) if family.pipelines else bound
    write = writer(family, fields)
    names = list(map(write, partials))
    if len(set(names)) < len(names):
        first = dict(zip(reversed(names), reversed(partials), strict=True))
        names = list(dict.fromkeys(names))
        partials = [first[name] for name in names]
    return fields, names, partials


def _keys(columns: Mapping[str, Iterable[Any]], count: int) -> list[Key]:
    """Make keys from their fields' values, column by column; a field without a column has its default.

    The constructor of a frozen class sets each field by a call with its name: a third of ``ckpm list`` for 23,000 keys.
    """
    keys = list(map(object.__new__, repeat(Key, count)))
    for name, put in _SETTERS.items():
        column = columns[name] if name in columns else repeat(_DEFAULTS[name])
        deque(map(put, keys, column), maxlen=0)
    return keys


_SETTERS = {name: getattr(Key, name).__set__ for name in KEY_FIELDS}  # of its slots
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Key)}


class _Verdicts(dict[Any, bool]):
    """Results of a test by the values of its fields; each is computed once."""

    def __init__(self, fields: tuple[str, ...], keeps: Callable[..., bool]) -> None:
        super().__init__()
        self.fields = fields
        self._test: Callable[[Any], bool] = keeps if len(fields) == 1 else lambda values: keeps(*values)

    def __missing__(self, values: Any) -> bool:
        verdict = self[values] = self._test(values)
        return verdict


class _Filters:
    """The rules of a family and the constraints of a receipt, each applied once all its fields are bound."""

    def __init__(self, family: Family, constraints: tuple[Constraint, ...]) -> None:
        tests = [(rule.fields, _allows(rule)) for rule in family.rules]
        # a field that every constraint restricts has a value that one of them allows: this prunes early
        restricted = set.intersection(*map(set, constraints)) if constraints else set()
        for field in restricted:
            tests.append(((field,), {value for constraint in constraints for value in constraint[field]}.__contains__))
        if len(constraints) > 1:
            fields = tuple(dict.fromkeys(name for constraint in constraints for name in constraint))
            tests.append((fields, _satisfies_any(constraints, fields)))
        if not constraints:  # the receipt keeps no kernel
            tests.append((("dtype",), lambda _: False))
        self._filters = [_Verdicts(fields, keeps) for fields, keeps in tests]
        self._due: dict[tuple[tuple[str, ...], ...], list[tuple[Callable[[Partial], Any], _Verdicts]]] = {}

    def due(self, before: tuple[str, ...], after: tuple[str, ...], partials: list[Partial]) -> list[Partial]:
        """The partials that pass all tests of fields bound since ``before``. Partials bind the fields ``after``."""
        for pick, verdicts in self._between(before, after):
            partials = list(compress(partials, map(verdicts.__getitem__, map(pick, partials))))
        return partials

    def _between(
        self, before: tuple[str, ...], after: tuple[str, ...]
    ) -> list[tuple[Callable[[Partial], Any], _Verdicts]]:
        """The tests that are due, each with a getter of its fields. The result is kept for thousands of blocks."""
        tests = self._due.get((before, after))
        if tests is None:
            positions = {name: index for index, name in enumerate(after)}
            tests = self._due[before, after] = [
                (itemgetter(*(positions[name] for name in verdicts.fields)), verdicts)
                for verdicts in self._filters
                if all(name in positions for name in verdicts.fields)
                and not all(name in before for name in verdicts.fields)
            ]
        return tests


def _allows(rule: Rule) -> Callable[..., bool]:
    return lambda *values: not rule.excludes(*values)


def _satisfies_any(constraints: tuple[Constraint, ...], fields: tuple[str, ...]) -> Callable[..., bool]:
    return lambda *values: any(_is_satisfied(constraint, fields, values) for constraint in constraints)


def _is_satisfied(constraint: Constraint, fields: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    return all(value in constraint[name] for name, value in zip(fields, values, strict=True) if name in constraint)


def _loop(
    family: Family, filters: _Filters, partials: list[Partial], bound: tuple[str, ...], axis: Axis, mask_impl: str
) -> tuple[list[Partial], tuple[str, ...]]:
    """The partials grown by one axis, and the fields that they bind then."""
    after = (*bound, *axis.fields)
    if axis.name == "tile":
        pick = itemgetter(*(bound.index(name) for name in ("arch_trait", "dtype", "hdim_q", "hdim_v")))
        grown = [(*partial, tile) for partial in partials for tile in family.tiles.get(pick(partial), ())]
        if family.tile_constraints:
            grown = [
                partial
                for partial in grown
                if fits(family.tile_constraint(pick(partial), partial[-1]), dict(zip(after, partial, strict=True)))
            ]
    else:
        values = axis.values
        if axis.name == "mask":
            values = tuple(step for step in values if step[0] in family.masks[mask_impl])
        grown = [partial + step for partial in partials for step in values]
    return filters.due(bound, after, grown), after


def _inner(
    family: Family, filters: _Filters, outer: list[Partial], bound: tuple[str, ...], mask_impl: str
) -> list[Partial]:
    """Each outer combination with the pipelines of all its blocks, with fields in the order of the family."""
    target = (*REQUEST_FIELDS, *family.fields)
    plans = []
    for block in family.pipelines:
        own = (*bound, *(name for axis in block.axes for name in axis.fields), *block.row_fields)
        plans.append((block, None if own == target else itemgetter(*(own.index(name) for name in target))))
    partials: list[Partial] = []
    for partial in outer:
        values = dict(zip(bound, partial, strict=True))
        for block, permute in plans:
            if not fits(block.constraint, values):
                continue
            if block.mask_impl and mask_impl != block.mask_impl:
                own = tuple(block.mask_impl if name == "mask_impl" else values[name] for name in bound)
                grown = _block(family, filters, own, bound, block, block.mask_impl)
            else:
                grown = _block(family, filters, partial, bound, block, mask_impl)
            partials += grown if permute is None else map(permute, grown)
    return partials


def _block(
    family: Family, filters: _Filters, partial: Partial, bound: tuple[str, ...], block: Pipelines, mask_impl: str
) -> list[Partial]:
    partials = [partial]
    for axis in block.axes:
        partials, bound = _loop(family, filters, partials, bound, axis, mask_impl)
    after = (*bound, *block.row_fields)
    fields = tuple(dict.fromkeys(name for row in block.rows for name in row.constraint))
    pick = _picker(tuple(bound.index(name) for name in fields))
    chosen: dict[Partial, list[tuple[Value, ...]]] = {}
    grown: list[Partial] = []
    for outer in partials:
        values = pick(outer)
        rows = chosen.get(values)
        if rows is None:
            rows = chosen[values] = [row.values for row in block.rows if _is_satisfied(row.constraint, fields, values)]
        grown += [outer + row for row in rows]
    return filters.due(bound, after, grown)


def _picker(places: tuple[int, ...]) -> Callable[[Partial], Partial]:
    if len(places) == 1:
        return lambda partial: (partial[places[0]],)
    return itemgetter(*places) if places else lambda partial: ()


def keeps(family: Family, receipt: int, values: Mapping[str, Any]) -> bool:
    """Return True if a receipt keeps a kernel with these values and builds its pipeline."""
    request = {**values, "receipt": receipt}
    if broken(family.receipt_rules, request) or not any(
        fits(constraint, values) for constraint in family.constraints(receipt)
    ):
        return False
    return not family.pipelines or any(block.holds(request) for block in family.pipelines)
