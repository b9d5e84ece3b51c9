"""Write a page about what changed between two states of CK, ready to be an issue: `ckpm workflows head`.

The lane of .github/templates/upstream-head.yml.j2 gets one commit of CK's development branch, and the commit that was
looked at last. Identification, names, rules, dispatch and text are compared here. Parity, the smoke build and the
suites are sessions; the page counts their results in build/.
"""

from __future__ import annotations

import argparse
import difflib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ckpm.base import jobs, settings
from ckpm.base.display import show
from ckpm.base.errors import SetupError, UpstreamError
from ckpm.base.outputs import write_output
from ckpm.base.processes import ProcessPool
from ckpm.base.results import LIBRARY_SHA256, Results
from ckpm.kernels.families.libraries import host
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.kernels.parity import dispatch_text
from ckpm.kernels.parity.bindings import bindings
from ckpm.kernels.parity.cases import tree_facts
from ckpm.kernels.upstream.codegen_runner import Live, difference_from_dialect
from ckpm.kernels.upstream.headers import content
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import checkout, include_closure
from ckpm.matrix.dialects import APIS, DEFAULT_FAMILY
from ckpm.matrix.published import compare_names
from ckpm.matrix.sessions import sessions

_SHOWN = 20  # lines of a section
_LIST = (0, "simplified")  # the receipt and the masks of all comparisons, those of a build


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, required=True, metavar="DIR", help="the checkout looked at last")
    parser.add_argument("--ck-root", type=Path, required=True, metavar="DIR", help="the checkout of the new commit")
    parser.add_argument("--title", required=True, help="the commits, as the page names them")
    parser.add_argument("--results", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/head.md"), metavar="FILE")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page. A state that fits no dialect is the page's first line, and an error after it is written."""
    refusal = None
    try:
        cache = settings.cache_folder()
        now = checkout(args.ck_root, cache)
        sections = compare(checkout(args.before, cache), now, cache)
        sections["Checks"] = [*outcomes(args.results, now)]
    except SetupError as error:
        sections, refusal = {"Identification": [f"refused: {error}"]}, error
    write_output(args.output, page(args.title, sections).encode())
    for name, lines in sections.items():
        show(f"{name}: {len(lines)} lines" if lines else f"{name}: nothing changed")
    show(str(args.output))
    if refusal:
        raise refusal


def page(title: str, sections: dict[str, list[str]]) -> str:
    """The page in Markdown. The list at its top counts the lines of each section."""
    text = [f"# {title}\n"]
    text += [f"- {name}: {f'{len(lines)} lines' if lines else 'nothing changed'}" for name, lines in sections.items()]
    for name, lines in sections.items():
        more = [f"- and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        text += [f"\n## {name}\n", *(f"- {line}" for line in lines[:_SHOWN]), *more] if lines else []
    return "\n".join(text) + "\n"


def compare(before: Tree, now: Tree, cache: Path) -> dict[str, list[str]]:
    """Lines about what changed, by section."""
    with ProcessPool(jobs.processors()) as pool:
        return {
            "Identification": [*_identification(before, now)],
            "Names": [*_names(before, now, pool, cache)],
            "Rules": [*_rules(now, cache)],
            **_texts(before, now, pool),
            "Files": [*_files(before, now)],
        }


def _identification(before: Tree, now: Tree) -> Iterator[str]:
    if before.dialect != now.dialect:
        yield f"dialect `{before.dialect}` before, `{now.dialect}` now"
    yield from (remark for remark in now.remarks if remark not in before.remarks)


def _names(before: Tree, now: Tree, pool: ProcessPool, cache: Path) -> Iterator[str]:
    """Lines about names that the codegens list, for each API and emulated arch."""
    lives = {api: [Live(tree, pool, api, cache) for tree in (before, now)] for api in APIS}
    listed = [
        (api, arch, [live.names(arch, *_LIST) for live in lives[api]]) for api in APIS for arch in sessions().emulated
    ]
    for api, arch, (names_before, names_now) in listed:
        try:
            difference = compare_names(names_before.result(), names_now.result())
        except UpstreamError as error:
            yield f"{api} {arch}: the codegen failed: {first_line(error)}"
            continue
        for word, names in (("new", difference.missing), ("gone", difference.extra)):
            yield from (f"{api} {arch}: {word}: `{name}`" for name in names)
        if first := difference.order_differs:
            yield f"{api} {arch}: another order from position {first.position} on: `{first.upstream}`"


def _rules(now: Tree, cache: Path) -> Iterator[str]:
    """Lines about names that the tables of the new state's dialect don't give: the rules that changed are theirs."""
    for api, families in APIS.items():
        try:
            difference = difference_from_dialect(now, families, sessions().emulated, cache)
        except UpstreamError:
            continue  # a line of the names
        if difference.count:
            yield f"{api}: dialect `{now.dialect}` differs: {difference.lines()[0]}"


def _texts(before: Tree, now: Tree, pool: ProcessPool) -> dict[str, list[str]]:
    """Lines about the dispatch and the instances that the codegens write for batch prefill."""
    rendered = [Live(tree, pool, DEFAULT_FAMILY).render(sessions().emulated[-1], *_LIST) for tree in (before, now)]
    try:
        old, new = (state.result() for state in rendered)
        names = {
            binding.dispatch_trait: name
            for name, text in (*old.instances.items(), *new.instances.items())
            for binding in bindings(text, *host(DEFAULT_FAMILY).functions)
        }
        new_dispatch, old_dispatch = (dispatch_text.parse(state.dispatch) for state in (new, old))
        dispatch = dispatch_text.compare(new_dispatch, old_dispatch, names)
    except UpstreamError as error:
        return {"Dispatch": [f"can't be compared: {first_line(error)}"]}
    changed = [name for name, text in new.instances.items() if old.instances.get(name, text) != text]
    return {
        "Dispatch": ["in these lines `upstream` is the new commit, `ours` the one before", *dispatch]
        if dispatch
        else [],
        "Text": [f"another text: `{name}`" for name in changed],
    }


def _files(before: Tree, now: Tree) -> Iterator[str]:
    """Lines about files of the codegen and of the headers that batch prefill includes, with their changed lines."""
    contents = [
        {file.relative_to(tree.root): content(file) for file in (*include_closure(tree.root), *tree.fmha.rglob("*.py"))}
        for tree in (before, now)
    ]
    for file in sorted({*contents[0], *contents[1]}):
        old, new = (state.get(file) for state in contents)
        if old is None or new is None:
            yield f"`{file}`: {'new' if old is None else 'gone'}"
        elif old != new:
            old_lines, new_lines = (data.decode(errors="replace").splitlines() for data in (old, new))
            _, _, *changed = difflib.unified_diff(old_lines, new_lines, n=0, lineterm="")
            marks = Counter(line[0] for line in changed)
            yield f"`{file}`: {marks['+']} new lines, {marks['-']} gone"


def outcomes(folder: Path, now: Tree) -> Iterator[str]:
    """Lines about parity, and about the suites of each emulated arch. Results of another tree are not counted."""
    results = [("parity", folder / "parity.json")]
    results += [
        (f"{suite} {arch}", folder / arch / "checkout" / f"{suite}.json")
        for arch in sessions().emulated
        for suite in sessions().table_suites
    ]
    for name, file in results:
        if not file.is_file():
            yield f"{name}: **no results**"
            continue
        stored = Results.read(file)
        if not _is_of(now, stored, file):
            yield f"{name}: **not counted**: {file} is of another tree than {now.root}. Run it again"
            continue
        counts = Counter(case.status for case in stored.cases)
        yield f"{name}: {', '.join(f'{count} {status}' for status, count in counts.items())}"
        yield from (f"{name}: {case.name}: {case.message}" for case in stored.failing[:3])


def _is_of(tree: Tree, stored: Results, file: Path) -> bool:
    """True if parity's facts list the tree, or if a suite ran on the library beside it and this is of the tree."""
    if file.name == "parity.json":
        return tree_facts(tree).items() <= stored.facts.items()
    manifest = Manifest.read(file.with_name(MANIFEST))
    return (stored.facts.get(LIBRARY_SHA256), tree.identity) == (manifest.library_sha256, manifest.upstream_identity)


def first_line(error: UpstreamError) -> str:
    return str(error).partition("\n")[0]
