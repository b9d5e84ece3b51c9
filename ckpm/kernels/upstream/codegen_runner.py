"""An upstream's own code generator, run as a program: its lists and its rendered texts.

It is never imported (its modules have names such as ``codegen`` and do work when imported) and never writes to its
tree. Note for Python 3.15: upstream's generate.py calls ``loader.load_module``, which that version no longer has. Until
a tree fixes it, parity needs an older Python; the error contains upstream's message.
"""

from __future__ import annotations

import functools
import hashlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import jobs
from ckpm.base.errors import UpstreamError
from ckpm.base.processes import ProcessPool, tool_environment
from ckpm.base.store import Store
from ckpm.kernels.upstream.headers import content
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import APIS, dialect
from ckpm.matrix.enumeration import enumerate_names
from ckpm.matrix.names import own_name
from ckpm.matrix.published import NameDifference, compare_names

TIMEOUT_SECONDS = 1800  # the backward list takes 26 s alone; on a crowded machine 600 s were seen
_STDERR_LINES = 15


@dataclass(frozen=True, slots=True)
class Rendered:
    """The output of generate.py: instance text by kernel name, and the text of the dispatch file."""

    instances: Mapping[str, str]
    dispatch: str


def knows_targets(tree: Tree) -> bool:
    """True if the tree's generate.py takes ``--targets``; older ones list the same kernels for every arch."""
    return '"--targets"' in content(tree.fmha / "generate.py").decode(errors="replace").replace("'", '"')


def list_names(tree: Tree, arch: str, api: str, receipt: int, mask: str, pool: ProcessPool | None = None) -> list[str]:
    """Return the kernel names in upstream's order of emission, with repetitions, without the dispatch file.

    ``api`` is upstream's name (matrix.dialects.APIS), ``mask`` ``simplified`` or ``generic``. Raises UpstreamError.
    """
    with tempfile.TemporaryDirectory(prefix="ckpm-list-") as folder:
        _generate(tree, arch, api, receipt, mask, ("--list_blobs", "blobs.txt"), Path(folder), pool)
        listed = Path(folder) / "blobs.txt"
        if not listed.is_file():
            raise UpstreamError(f"{tree.fmha / 'generate.py'} wrote no list of kernels.", kind="codegen")
        lines = listed.read_text(encoding="utf-8", errors="replace").splitlines()
    names = [Path(line).stem for line in lines if line.strip()]
    return [name for name in names if not name.endswith("_api")]  # the dispatch file


def render(
    tree: Tree, arch: str, api: str, receipt: int, mask: str, folder: Path, pool: ProcessPool | None = None
) -> Rendered:
    """Render all instances and the dispatch into ``folder``, which must exist and be empty.

    Raises:
        UpstreamError: generate.py failed, or wrote no dispatch file.
    """
    _generate(tree, arch, api, receipt, mask, ("--output_dir", "."), folder, pool)
    texts = {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.rglob("*.cpp"))}
    dispatch = texts.pop(dispatch_name(api), None)
    if dispatch is None:
        raise UpstreamError(
            f"{tree.fmha / 'generate.py'} wrote no {dispatch_name(api)}.cpp for receipt {receipt}.", kind="codegen"
        )
    return Rendered(texts, dispatch)


class Live:
    """Runs of one API of a tree's codegen, each done once, in the background of a pool.

    With a ``cache`` folder lists are kept there, because the lists of the backward pass take half a minute each. Texts
    are not kept: they take a second or two, and much space.
    """

    def __init__(self, tree: Tree, pool: ProcessPool, api: str, cache: Path | None = None) -> None:
        self.tree, self.pool, self.api, self.cache = tree, pool, api, cache
        self.takes_arch = knows_targets(tree)
        self._lists: dict[tuple[str, int, str], Future[list[str]]] = {}
        self._renders: dict[tuple[str, int, str], Future[Rendered]] = {}

    def names(self, arch: str, receipt: int, mask: str) -> Future[list[str]]:
        key = (arch if self.takes_arch else "", receipt, mask)
        if key not in self._lists:
            self._lists[key] = self.pool.submit(self._list, arch, receipt, mask)
        return self._lists[key]

    def _list(self, arch: str, receipt: int, mask: str) -> list[str]:
        if self.cache is None:
            return list_names(self.tree, arch, self.api, receipt, mask, self.pool)
        inputs = (codegen_digest(self.tree.fmha), sys.version, arch if self.takes_arch else "", self.api, receipt, mask)
        lists, key = Store(self.cache / "parity"), hashlib.sha256(repr(inputs).encode()).hexdigest()
        if (names := lists.get(key)) is None:
            names = "\n".join(list_names(self.tree, arch, self.api, receipt, mask, self.pool)).encode()
            lists.put(key, names)
        return names.decode().splitlines()

    def render(self, arch: str, receipt: int, mask: str) -> Future[Rendered]:
        key = (arch if self.takes_arch else "", receipt, mask)
        if key not in self._renders:
            self._renders[key] = self.pool.submit(_render, self.tree, arch, self.api, receipt, mask, self.pool)
        return self._renders[key]


def difference_from_dialect(
    tree: Tree, families: Sequence[str], archs: Sequence[str], cache: Path, receipt: int = 0, mask: str = "simplified"
) -> NameDifference:
    """Compare the names that a tree's codegen lists with its dialect's names: "missing" are names of the tree alone.

    All families of an API are compared. Lists are kept in ``cache`` by the content of the codegen.

    Raises UpstreamError: the codegen fails.
    """
    matrix_names, upstream_names = dict[str, None](), dict[str, None]()
    with ProcessPool(jobs.processors()) as pool:
        listed = []
        for api in (api for api, of_api in APIS.items() if set(of_api) & set(families)):
            live = Live(tree, pool, api, cache)
            its_families = [dialect(tree.dialect).family(name) for name in APIS[api]]
            for family in its_families:
                for arch in (arch for arch in archs if arch in family.archs):
                    matrix_names |= dict.fromkeys(enumerate_names(family, arch=arch, receipt=receipt, mask_impl=mask))
                    listed.append((its_families, live.names(arch, receipt, mask)))
        for its_families, names in listed:
            upstream_names |= dict.fromkeys(own_name(its_families, name) for name in names.result())
    return compare_names(sorted(matrix_names), sorted(upstream_names))


def codegen_digest(fmha: Path) -> str:
    """Return the sha256 of the Python files of a codegen and their paths, on which its lists depend."""
    digest = hashlib.sha256()
    for file in (fmha / "generate.py", *sorted((fmha / "codegen").rglob("*.py"))):
        digest.update(f"{file.relative_to(fmha)}\0{hashlib.sha256(content(file)).hexdigest()}\n".encode())
    return digest.hexdigest()


def _render(tree: Tree, arch: str, api: str, receipt: int, mask: str, pool: ProcessPool) -> Rendered:
    with tempfile.TemporaryDirectory(prefix="ckpm-render-") as folder:
        return render(tree, arch, api, receipt, mask, Path(folder), pool)


def word_of(api: str) -> str:
    """Return the name of an API in its rendered texts, which differs from generate.py's option for one API."""
    return "fwd_pagedkv" if api == "pagedkv_prefill" else api


def dispatch_name(api: str) -> str:
    """Return the stem of an API's dispatch file."""
    return f"fmha_{word_of(api)}_api"


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """Return this process's folder for the bytecode of upstream's modules, which must not be written into its tree.

    Removed when the process ends. Without it each of a hundred runs would compile all modules again.
    """
    return tempfile.TemporaryDirectory(prefix="ckpm-bytecode-")


def _generate(
    tree: Tree,
    arch: str,
    family: str,
    receipt: int,
    mask: str,
    output: Sequence[str],
    folder: Path,
    pool: ProcessPool | None,
) -> None:
    """Run generate.py in ``folder``, which the command doesn't name, so that it can be run elsewhere."""
    script = tree.fmha.absolute() / "generate.py"
    arguments = [str(script), "--api", family, "--receipt", str(receipt), "--mask", mask, *output]
    if knows_targets(tree):
        arguments += ["--targets", arch]
    # The script finds its modules beside itself; this process's search path must not shadow them. Variables that steer
    # the codegen, such as CK_TILE_FMHA_FWD_CUSTOM_FACTORY, would change lists that are kept for others.
    environment = {name: value for name, value in tool_environment().items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPYCACHEPREFIX": _bytecode().name, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
    # -B replaces the folder of bytecode: by hand, too, nothing is written into the tree
    by_hand = f"To see it again, run in an empty folder: {shlex.join([sys.executable, '-B', *arguments])}"
    try:
        run = (pool or ProcessPool(1)).run(
            [sys.executable, *arguments], cwd=folder, environment=environment, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise UpstreamError(f"{script} is not done after {TIMEOUT_SECONDS} s. {by_hand}", kind="codegen") from error
    if run.returncode != 0:
        tail = "\n".join(run.stderr.strip().splitlines()[-_STDERR_LINES:])
        raise UpstreamError(f"{script} ended with {run.returncode}. {by_hand}\nIt said:\n{tail}", kind="codegen")
