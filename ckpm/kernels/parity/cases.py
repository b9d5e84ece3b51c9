"""Parity: the matrix and our C++ text against an upstream's own codegen, run live, and against stored name lists.

For each arch, receipt and mask set the names of all families are compared, with their order (names.py). Every API with
C++ is also compared by bindings of instances, dispatch, and machine code of a sample. fwd_v3, which no codegen lists,
is compared with upstream's files (v3.py).
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import jobs
from ckpm.base.errors import UpstreamError
from ckpm.base.processes import ProcessPool
from ckpm.base.results import CaseResult, Results
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families import fwd_v3
from ckpm.kernels.families.libraries import host, library_with
from ckpm.kernels.families.render import DEFAULT_SIZE, plan_units, unit_text
from ckpm.kernels.families.spellings import features as features_of
from ckpm.kernels.parity import dispatch_text, machine_code
from ckpm.kernels.parity import v3 as parity_v3
from ckpm.kernels.parity.bindings import Binding, bindings, differences
from ckpm.kernels.parity.cpp_tokens import text_error
from ckpm.kernels.parity.launches import launches
from ckpm.kernels.parity.names import (
    ParityFinding,
    Title,
    absent_arch,
    compare_lists,
    error_case,
    judge,
    names_cases,
    stored_case,
)
from ckpm.kernels.upstream.codegen_runner import Live, Rendered, codegen_digest
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.defects import defects
from ckpm.matrix.dialects import APIS, dialect
from ckpm.matrix.dialects import archs as archs_table
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.families import Family
from ckpm.matrix.keys import Key
from ckpm.matrix.published import StoredList, stored_lists

FAMILY = "batch_prefill"
TEXT_APIS = ("fwd", "pagedkv_prefill", "fwd_splitkv", "fwd_appendkv", "bwd")
_Compared = dict[tuple[str, ...], tuple[Rendered, list[ParityFinding]]]  # texts and findings by listed and own names
_LOGGED_AFTER = 10  # seconds without a line: most cases take half a second, some a minute

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityRequest:
    """Options of a comparison. Without ``toolchain`` machine code is left out; ``stored`` checks stored lists, too."""

    upstreams: tuple[str, ...]
    families: tuple[str, ...]
    archs: tuple[str, ...]
    receipts: tuple[int, ...]
    masks: tuple[str, ...]
    cache: Path
    ck_root: Path | None = None
    toolchain: Toolchain | None = None
    job_count: int = 1
    stored: bool = True


def compare_upstreams(request: ParityRequest) -> Results:
    """Return all cases of a request. A case that can't be checked has the outcome ``error``; the others go on.

    The facts are each tree's identity, and its codegen's digest.
    """
    cases: list[CaseResult] = []
    logged = time.monotonic()

    def take(new: Generator[CaseResult]) -> None:
        nonlocal logged
        with closing(new):  # an exception ends its pool here, and not when its traceback is forgotten
            for case in new:
                cases.append(case)
                if case.outcome != "passed" or time.monotonic() - logged >= _LOGGED_AFTER:
                    log.info(f"  case {len(cases)}: {case.upstream} {case.name}: {case.outcome} ({case.seconds:.1f} s)")
                    logged = time.monotonic()

    trees = [locate(name, cache=request.cache, ck_root=request.ck_root) for name in request.upstreams]
    for tree in trees:
        if FAMILY in request.families:
            log.info(f"{tree.name}: names, bindings and dispatch against its generate.py ({tree.dialect})")
            take(live_cases(tree, request.archs, request.receipts, request.masks))
        apis = [
            api for api, families in APIS.items() if FAMILY not in families and set(families) & set(request.families)
        ]
        if apis:
            log.info(f"{tree.name}: names of {', '.join(apis)}")
        take(names_cases(tree, apis, request.archs, request.receipts, request.masks, request.cache))
        for api in (api for api in TEXT_APIS if set(APIS[api]) & set(request.families)):
            take(text_cases(tree, api, request.archs, request.receipts, request.masks))
        if fwd_v3.NAME in request.families and host(fwd_v3.NAME).renders(tree.dialect):
            take(v3_cases(tree, request))
    if request.toolchain is not None:
        take(machine_code_cases(trees, request, request.toolchain))
    if request.stored:
        log.info("stored name lists")
        cases += [stored_case(entry) for entry in stored_lists() if _is_wanted(entry, request)]
    return Results(tuple(cases), {fact: text for tree in trees for fact, text in tree_facts(tree).items()})


def tree_facts(tree: Tree) -> dict[str, str]:
    """The facts of parity's results about a tree: the identity by its name, and the digest of its codegen."""
    return {tree.name: tree.identity, f"{tree.name} codegen": codegen_digest(tree.fmha)}


def _is_wanted(entry: StoredList, request: ParityRequest) -> bool:
    return (
        entry.arch in request.archs
        and entry.receipt in request.receipts
        and entry.mask_impl in request.masks
        and bool(set(entry.families) & set(request.families))
    )


def live_cases(
    tree: Tree, archs: Sequence[str], receipts: Sequence[int], masks: Sequence[str]
) -> Generator[CaseResult]:
    """Yield a case for each arch, receipt and mask set, from a tree's own codegen."""
    family = dialect(tree.dialect).family(FAMILY)
    with ProcessPool(jobs.processors()) as pool:
        live = Live(tree, pool, FAMILY)
        compared: _Compared = {}
        wanted = [(arch, receipt, mask) for mask in masks for receipt in receipts for arch in archs]
        for arch, receipt, mask in wanted:
            live.names(arch, receipt, mask)
            if arch in family.archs:
                live.render(arch, receipt, mask)
        for arch, receipt, mask in wanted:
            yield _live_case(live, family, arch, receipt, mask, compared)


def _live_case(live: Live, family: Family, arch: str, receipt: int, mask: str, compared: _Compared) -> CaseResult:
    started = time.monotonic()
    title = Title(live.tree.name, arch, FAMILY, f"receipt {receipt}, {mask} masks")
    try:
        upstream_names = live.names(arch, receipt, mask).result()
        keys = enumerate_keys(family, arch=arch, receipt=receipt, mask_impl=mask)
        if arch not in family.archs:
            reference = live.names(next(iter(family.archs)), receipt, mask).result()
            findings = [absent_arch(family, arch, upstream_names, reference)]
        else:
            rendered = live.render(arch, receipt, mask).result()
            texts = _compare_new_texts(compared, live.tree, keys, upstream_names, rendered)
            findings = [compare_lists(keys, upstream_names), *texts]
    except UpstreamError as error:
        return error_case(title, error, started)
    return judge(title, findings, started)


def text_cases(
    tree: Tree, api: str, archs: Sequence[str], receipts: Sequence[int], masks: Sequence[str]
) -> Generator[CaseResult]:
    """Yield a case for each arch with kernels, receipt and mask set: the texts of one of TEXT_APIS.

    No case if the tree's dialect has no C++. Receipts with the same kernels share the texts of an arch.
    """
    library = library_with(APIS[api][0])
    if not host(library).renders(tree.dialect):
        return
    families = [dialect(tree.dialect).family(name) for name in APIS[api]]
    traits = families[0].archs
    done: dict[tuple[str, str, tuple[str, ...]], list[ParityFinding]] = {}
    compared: _Compared = {}
    with ProcessPool(jobs.processors()) as pool:
        live = Live(tree, pool, api)
        # receipts innermost: they share most of the texts of an arch
        for arch, receipt, mask in [(a, r, m) for m in masks for a in archs if a in traits for r in receipts]:
            started = time.monotonic()
            title = Title(tree.name, arch, api, f"receipt {receipt}, {mask} masks, texts")
            groups = [enumerate_keys(family, arch=arch, receipt=receipt, mask_impl=mask) for family in families]
            if not all(groups):
                continue
            keys = [key for group in groups for key in group]
            names = tuple(key.name for key in keys)
            slot = arch if live.takes_arch else "", mask, names
            try:
                if slot not in done:
                    rendered = live.render(arch, receipt, mask).result()
                    done[slot] = _compare_new_texts(compared, tree, keys, names, rendered, library)
                yield judge(title, done[slot], started)
            except UpstreamError as error:
                yield error_case(title, error, started)


def v3_cases(tree: Tree, request: ParityRequest) -> Generator[CaseResult]:
    """Yield cases for fwd_v3's files for each arch that has its kernels, then for their machine code."""
    for arch in (arch for arch in request.archs if arch in dialect(tree.dialect).family(fwd_v3.NAME).archs):
        yield parity_v3.texts_case(tree, arch)
        if request.toolchain is not None:
            yield parity_v3.machine_code_case(
                tree, arch, request.toolchain, cache=request.cache, jobs=request.job_count
            )


def _compare_new_texts(
    compared: _Compared,
    tree: Tree,
    keys: Sequence[Key],
    listed: Sequence[str],
    rendered: Rendered,
    family: str = FAMILY,
) -> list[ParityFinding]:
    """Compare texts that differ from those that were last compared for the same keys: archs share most of theirs."""
    names = *listed, *(key.name for key in keys)
    texts, findings = compared.get(names, (None, []))
    if texts != rendered:
        findings = compare_texts(tree, keys, listed, rendered, family)
        compared[names] = rendered, findings
    return findings


def compare_texts(
    tree: Tree, keys: Sequence[Key], listed: Sequence[str], rendered: Rendered, family: str = FAMILY
) -> list[ParityFinding]:
    """Compare bindings and dispatch of our text for ``keys`` with upstream's rendered text.

    Raises UpstreamError if a text can't be followed.
    """
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    upstream_bindings = {name: _bindings(text, family) for name, text in rendered.instances.items()}
    project_bindings: dict[str, tuple[Binding, ...]] = {}
    # one by one where receipts share most of many kernels: the bindings of a unit of one are cached
    for unit in plan_units(keys, DEFAULT_SIZE if host(family).whole_units else 1):
        specialisations = _bindings(unit_text(unit, features), family)
        if len(specialisations) != len(unit.keys):
            raise text_error(
                f"our unit {unit.name} has {len(specialisations)} specialisations for {len(unit.keys)} kernels"
            )
        project_bindings |= {key.name: launched for key, launched in zip(unit.keys, specialisations, strict=True)}
    lines = [f"{name}: listed but not rendered" for name in listed if name not in upstream_bindings]
    lines += [f"{name}: rendered but not listed" for name in upstream_bindings.keys() - set(listed)]
    for name, specialisations in upstream_bindings.items():
        if len(specialisations) != 1:
            lines.append(f"{name}: upstream's text has {len(specialisations)} specialisations, expected 1")
        elif name in project_bindings:
            lines += [f"{name}: {line}" for line in _launch_differences(specialisations[0], project_bindings[name])]
    names = {
        binding.dispatch_trait: name
        for name, specialisations in upstream_bindings.items()
        for launched in specialisations
        for binding in launched
    }
    names |= {binding.dispatch_trait: name for name, launched in project_bindings.items() for binding in launched}
    return [
        ParityFinding("bindings", tuple(lines), f"the same: bindings of {len(upstream_bindings)} instances"),
        compare_dispatch(tree, keys, rendered, family, names),
    ]


def _launch_differences(upstream: Sequence[Binding], project: Sequence[Binding]) -> list[str]:
    if len(upstream) != len(project):
        return [f"upstream launches {len(upstream)} kernels, ours {len(project)}"]
    turns = [f"launch {turn} of {len(project)}: " if len(project) > 1 else "" for turn in range(1, len(project) + 1)]
    rows = zip(turns, upstream, project, strict=True)
    return [
        f"{turn}{line}"
        for turn, upstream_binding, project_binding in rows
        for line in differences(upstream_binding, project_binding)
    ]


def compare_dispatch(
    tree: Tree, keys: Sequence[Key], rendered: Rendered, family: str, names: Mapping[str, str]
) -> ParityFinding:
    """Compare order and conditions of our dispatch over ``keys`` with upstream's. ``names`` are by trait."""
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    dispatch = _dispatch(rendered.dispatch, family)
    branches = sum(1 for _ in dispatch.kernels())
    project_text = host(library_with(family)).dispatch(keys, features)  # of no keys, too: a receipt may keep none
    order = dispatch_text.compare(dispatch, _dispatch(project_text, family), names)
    return ParityFinding("dispatch", tuple(order), f"the same: order and conditions of {branches} dispatch branches")


# Receipts and archs share most of their texts.
@functools.lru_cache(maxsize=25_000)
def _bindings(text: str, family: str) -> tuple[tuple[Binding, ...], ...]:
    """Return the launches of each specialisation of a text: several under conditions in split-KV, one elsewhere."""
    library = host(family)
    if library.several:
        return tuple(launches(text, library.functions))
    (function,) = library.functions
    return tuple((binding,) for binding in bindings(text, function))


@functools.lru_cache(maxsize=200)
def _dispatch(text: str, family: str) -> dispatch_text.Dispatch:
    return dispatch_text.parse(text, host(library_with(family)).api or f"fmha_{family}")


def machine_code_cases(trees: Sequence[Tree], request: ParityRequest, toolchain: Toolchain) -> Generator[CaseResult]:
    """Yield a case for each tree, API and arch. All compilers share one pool, so that none waits for a case."""
    apis = [api for api in (FAMILY, *TEXT_APIS) if set(APIS[api]) & set(request.families)]
    wanted = [(tree, api, arch) for tree in trees for api in apis for arch in sampled_archs(tree, api, request.archs)]
    if wanted:
        log.info(f"machine code of samples, {request.job_count} compilers at once ({toolchain.identity})")
    with ProcessPool(request.job_count) as pool:
        lives = {(tree.name, api): Live(tree, pool, api) for tree, api, _ in wanted}
        renders = [
            {mask: lives[tree.name, api].render(arch, 0, mask) for mask in request.masks} for tree, api, arch in wanted
        ]
        started = [
            machine_code_case(tree, api, arch, texts, request, toolchain, pool)
            for (tree, api, arch), texts in zip(wanted, renders, strict=True)
        ]
        for finish in started:
            yield finish()


def sampled_archs(tree: Tree, api: str, archs: Sequence[str]) -> list[str]:
    """Return the requested gfx9 archs whose machine code is compared, if the API has kernels for them.

    A library with whole units is compared on each of these archs. Others are compared on the last arch of each arch
    trait, because those share kernels: samples are larger, and each kernel is compiled alone.
    """
    library = host(library_with(APIS[api][0]))
    if not library.renders(tree.dialect):
        return []
    traits = dialect(tree.dialect).family(APIS[api][0]).archs
    table = archs_table()
    sampled = [arch for arch in archs if arch in traits and table[arch].generation == "gfx9"]
    return sampled if library.whole_units else list({traits[arch]: arch for arch in sampled}.values())


def machine_code_case(
    tree: Tree,
    api: str,
    arch: str,
    renders: Mapping[str, Future[Rendered]],
    request: ParityRequest,
    toolchain: Toolchain,
    pool: ProcessPool,
) -> Callable[[], CaseResult]:
    """Start to compile a sample of each family's kernels from upstream's text and from ours, on one arch.

    ``renders`` are upstream's texts by mask set. Return a function that waits for the outcome.
    """
    title = Title(tree.name, arch, api, "machine code")
    started = time.monotonic()
    families = [  # a family without masks has the same keys in both sets
        list(dict.fromkeys(key for mask in request.masks for key in enumerate_keys(family, arch=arch, mask_impl=mask)))
        for family in map(dialect(tree.dialect).family, APIS[api])
    ]
    dims = host(library_with(APIS[api][0])).compiled_hdims
    chosen = [
        key
        for keys in families
        for key in machine_code.choose(
            [candidate for candidate in keys if candidate.hdim_q in dims or not dims], tree.dialect, arch
        )
    ]
    try:
        texts = {mask: render.result().instances for mask, render in renders.items()}
    except UpstreamError as error:
        failed = error_case(title, error, started)
        return lambda: failed
    texts[""] = texts[request.masks[0]]
    if unknown := [key.name for key in chosen if key.name not in texts[key.mask_impl]]:
        finding = ParityFinding(
            "machine code", tuple(f"{name}: upstream renders no such kernel" for name in unknown), ""
        )
        differs = judge(title, [finding], started)
        return lambda: differs
    pairs = [(key, texts[key.mask_impl][key.name]) for key in chosen]
    finish = machine_code.compare(pairs, tree, toolchain, arch, cache=request.cache, pool=pool)
    bodiless = sum(not machine_code.has_device_code(key, arch) for keys in families for key in keys)

    def wait_and_judge() -> CaseResult:
        waited = time.monotonic()
        which = f" of head dims {', '.join(map(str, sorted(dims)))}" if dims else ""
        return _judge_code(title, chosen, finish(), bodiless, f"kernels{which}", toolchain, waited)

    return wait_and_judge


def _judge_code(
    title: Title,
    chosen: Sequence[Key],
    compared: Sequence[machine_code.CodeComparison],
    bodiless: int,
    kernels: str,
    toolchain: Toolchain,
    started: float,
) -> CaseResult:
    if errors := [f"{row.name}: {row.error}" for row in compared if row.error]:
        return error_case(title, UpstreamError("\n".join(errors), kind="codegen"), started)
    labels = [f"{key.name} ({key.mask_impl} masks)" if key.mask_impl else key.name for key in chosen]
    lines = [f"{label}: {row.difference}" for label, row in zip(labels, compared, strict=True) if row.difference]
    same = [f"  {row.code_bytes} bytes  {label}" for label, row in zip(labels, compared, strict=True) if not row.defect]
    sampled = f"{len(same)} {kernels} that hold every axis value that compiles ({toolchain.identity})"
    note = f"the same: machine code of {sampled}:"
    findings = [ParityFinding("machine code", tuple(lines), "\n".join([note, *same]))]
    if changed := [f"  {label}: {row.beside}" for label, row in zip(labels, compared, strict=True) if row.beside]:
        heading = (
            f"{len(changed)} of them are the same alone, and not in one unit with the others, as builds make them:"
        )
        findings.append(ParityFinding("machine code", (), "\n".join([heading, *changed])))
    if bodiless:
        left_out = (
            f"{bodiless} kernels of 64-bit loads were left out: upstream's text guards their device code from this arch"
        )
        findings.append(ParityFinding("machine code", (), left_out))
    for defect in defects():
        if hit := [label for label, row in zip(labels, compared, strict=True) if row.defect == defect.name]:
            # Neither text compiles, so there is nothing to compare: reported wherever it is accepted.
            reason = f"neither text compiles, documented defect '{defect.name}': {defect.reason}"
            findings.append(ParityFinding("machine code", (), "\n".join([reason, *(f"  {label}" for label in hit)])))
    return judge(title, findings, started)
