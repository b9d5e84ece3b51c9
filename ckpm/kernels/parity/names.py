"""Names of all families against an upstream's own codegen, run live, and against stored lists; cases of comparisons."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import jobs
from ckpm.base.errors import UpstreamError
from ckpm.base.processes import ProcessPool
from ckpm.base.results import CaseResult
from ckpm.kernels.upstream.codegen_runner import Live
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import APIS, dialect
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.families import Family
from ckpm.matrix.keys import Key
from ckpm.matrix.names import own_name
from ckpm.matrix.published import StoredList, compare_names, emission_sha256

_SHOWN = 5

# Documented differences: their names are written into a case's text wherever they are accepted.
ARCH_IGNORED = "codegen-ignores-arch"
ARCH_REFUSED = "codegen-refuses-arch"


@dataclass(frozen=True, slots=True)
class ParityFinding:
    """The result of one comparison: lines that name differences (none if equal), and a note on what was compared."""

    what: str
    lines: tuple[str, ...]
    note: str


def names_cases(
    tree: Tree,
    apis: Sequence[str],
    archs: Sequence[str],
    receipts: Sequence[int],
    masks: Sequence[str],
    cache: Path | None = None,
) -> Generator[CaseResult]:
    """Yield a case for each API, arch, receipt and mask set: the names of its families from a tree's own codegen.

    The codegen's lists are kept in ``cache``, if it is given, by the content of its files.
    """
    wanted = [(api, arch, receipt, mask) for api in apis for mask in masks for receipt in receipts for arch in archs]
    with ProcessPool(jobs.processors()) as pool:
        lives = {api: Live(tree, pool, api, cache) for api in apis}
        listed = [lives[api].names(arch, receipt, mask) for api, arch, receipt, mask in wanted]  # all are started
        for (api, arch, receipt, mask), names in zip(wanted, listed, strict=True):
            yield _names_case(tree, api, arch, receipt, mask, names)


def _names_case(tree: Tree, api: str, arch: str, receipt: int, mask: str, listed: Future[list[str]]) -> CaseResult:
    started = time.monotonic()
    title = Title(tree.name, arch, api, f"receipt {receipt}, {mask} masks")
    families = [dialect(tree.dialect).family(name) for name in APIS[api]]
    absent = all(arch not in family.archs for family in families)
    try:
        upstream_names = listed.result()
    except UpstreamError as error:
        return refused_arch(title, families[0], arch, error, started) if absent else error_case(title, error, started)
    if absent:
        arch_with_kernels = next(iter(families[0].archs))
        return judge(
            title,
            [absent_arch(families[0], arch, upstream_names, _names(families, arch_with_kernels, receipt, mask))],
            started,
        )
    keys = [key for family in families for key in enumerate_keys(family, arch=arch, receipt=receipt, mask_impl=mask)]
    return judge(title, [compare_lists(keys, [own_name(families, name) for name in upstream_names])], started)


def _names(families: Sequence[Family], arch: str, receipt: int, mask: str) -> list[str]:
    return [name for family in families for name in enumerate_names(family, arch=arch, receipt=receipt, mask_impl=mask)]


def refused_arch(title: Title, family: Family, arch: str, error: UpstreamError, started: float) -> CaseResult:
    """Accept an arch that the codegen of a dialect's version doesn't support and the matrix has no kernels for.

    codegen-refuses-arch: generate.py ends with "Unsupported device target ARCH". Any other failure is an error.
    """
    refusal = f"Unsupported device target {arch}"
    if refusal not in str(error):
        return error_case(title, error, started)
    note = (
        f"documented difference '{ARCH_REFUSED}': upstream's codegen ends with '{refusal}'; the matrix has no kernel: "
        f"{family.absent}"
    )
    return judge(title, [ParityFinding("names", (), note)], started)


def absent_arch(family: Family, arch: str, upstream_names: Sequence[str], reference: Sequence[str]) -> ParityFinding:
    """Accept an arch without kernels: ours is empty, and upstream's must be, with one documented difference.

    codegen-ignores-arch: codegens of 2025 list (and would render) the gfx9 kernels whatever the target is, or take no
    target. The matrix has none where no pipeline or tile of that version is made for the arch. Accepted only while
    upstream's list for the arch is exactly its gfx9 list (``reference``); later codegens return nothing for such an
    arch.
    """
    if not upstream_names:
        return ParityFinding("names", (), f"the same: no kernel on either side: {family.absent}")
    if list(upstream_names) == list(reference):
        note = (
            f"documented difference '{ARCH_IGNORED}': upstream's codegen pays no heed to the arch and lists its "
            f"{len(upstream_names)} gfx9 kernels for {arch}; the matrix has none: {family.absent}"
        )
        return ParityFinding("names", (), note)
    return ParityFinding("names", compare_names([], upstream_names).lines(), f"{arch} should have no kernel")


def compare_lists(keys: Sequence[Key], upstream_names: Sequence[str]) -> ParityFinding:
    """Compare names and their order."""
    lines = compare_names([key.name for key in keys], upstream_names).lines()
    return ParityFinding("names", lines, f"the same: {len(upstream_names)} names in upstream's order")


def stored_case(entry: StoredList) -> CaseResult:
    """Compare a stored list of upstream's names with ours: as a set, and in order if the hash of the order is known."""
    started = time.monotonic()
    title = Title(
        f"{entry.dialect} (stored list)", entry.arch, entry.api, f"receipt {entry.receipt}, {entry.mask_impl} masks"
    )
    families = [dialect(entry.dialect).family(name) for name in entry.families]
    matrix_names = _names(families, entry.arch, entry.receipt, entry.mask_impl)
    difference = compare_names(sorted(matrix_names), entry.names())
    lines = list(difference.lines())
    ordered = entry.sha256_emission_order is not None
    if difference.same and ordered and emission_sha256(matrix_names) != entry.sha256_emission_order:
        lines.append("the names are the same, their order is not upstream's order of emission")
    note = f"the same: {entry.count} names" + (" in upstream's order" if ordered else " (stored without an order)")
    return judge(title, [ParityFinding("names", tuple(lines), note)], started)


@dataclass(frozen=True, slots=True)
class Title:
    """The subject of a case: an upstream, an arch and a family."""

    upstream: str
    arch: str
    family: str
    name: str

    def case(self, outcome: str, started: float, *, message: str = "", text: str = "") -> CaseResult:
        """Return the case as it ended now; ``started`` is its time.monotonic()."""
        return CaseResult(
            suite="parity",
            arch=self.arch,
            upstream=self.upstream,
            classname=f"parity.{self.upstream}.{self.arch}.{self.family}",
            name=f"{self.arch} {self.family} {self.name}",
            outcome=outcome,
            message=message,
            text=text,
            seconds=round(time.monotonic() - started, 3),
        )


def judge(title: Title, findings: Sequence[ParityFinding], started: float) -> CaseResult:
    wrong = [finding for finding in findings if finding.lines]
    if not wrong:
        text = "\n".join(finding.note for finding in findings)
        return title.case("passed", started, text=text)
    message = "; ".join(f"{finding.what}: {_first_line(finding.lines[0])}" for finding in wrong)
    parts = []
    for finding in wrong:
        more = [f"and {len(finding.lines) - _SHOWN} more lines"] if len(finding.lines) > _SHOWN else []
        parts.append("\n".join([f"{finding.what} differ:", *finding.lines[:_SHOWN], *more]))
    return title.case("failed", started, message=message, text="\n\n".join(parts))


def error_case(title: Title, error: Exception, started: float) -> CaseResult:
    return title.case("error", started, message=_first_line(str(error)), text=str(error))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
