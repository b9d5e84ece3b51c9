"""CK's source trees: a pinned package, downloaded and unpacked once, or a checkout.

A package is found with pip's own configuration, checked against the sha256 in matrix/upstreams.yaml, and
unpacked below the cache folder. It is renamed at the end, so that two runs at once or a killed run leave either the
whole tree or none. The sha256 of each unpacked file is stored beside the tree and checked before each use, because
objects of a damaged header would enter the shared cache. About 1,100 files of 10 MB take a tenth of a second.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ckpm.base.errors import ServiceError, SetupError, TrustError, UpstreamError, UsageError
from ckpm.base.files import hold_lock, is_special, name_write_errors, sha256_of
from ckpm.base.paths import data
from ckpm.base.trust import demand_private
from ckpm.kernels.upstream.codegen_runner import difference_from_dialect
from ckpm.kernels.upstream.headers import State, content, states
from ckpm.kernels.upstream.tree import FMHA, Tree
from ckpm.matrix.dialects import (
    Detection,
    Dialect,
    PackagedUpstream,
    check_upstream,
    compute_units,
    dialect,
    dialect_names,
    feature_table,
    features,
    upstreams,
    with_features,
)

OWN_HEADERS = " with headers "  # separates a package from the text of our own headers in the identity of a tree
_KERNELS = data("kernels")
_CHECKSUMS = "files.sha256"  # in sha256sum's format: `sha256sum --check files.sha256` works, too
_MEND = "set CKPM_CACHE to another folder"
_ENUMERATION = re.compile(r"enum\s+(?:class|struct)?\s*(\w+)\s*(?::[^{;]*)?\{([^}]*)\}")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TARGET = re.compile(r"""["'](gfx[0-9][0-9a-z]*)""")
_PARAMETER = re.compile(r"(\w+)\s*(=.*)?$", re.DOTALL)
_SELECTOR_WITH_BASE = re.compile(rb"fmha_batch_prefill_select_kv_load_mode\s*\([^{;]*\bk_base_ptr\b")
_STARTS = (  # of include_closure; not every version of CK has all
    *(f"{FMHA}/{name}" for name in ("fmha_fwd.hpp", "fmha_bwd.hpp", "fmha_fwd_v3.hpp", "fmha_fwd_v3_impl.hpp")),
    *("include/ck_tile/ops/fmha/block/variants.hpp", "include/ck_tile/host/device_prop.hpp"),
)
# names of the toolchain's headers, too, which a tree can hide
_INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^/>"\n][^>"\n]*)[>"]', re.MULTILINE)

log = logging.getLogger(__name__)


def locate(name: str, *, cache: Path, ck_root: Path | None = None, headers: Path | None = None) -> Tree:
    """Return the tree of an upstream: ``aiter``, ``flash-attn``, or ``checkout`` (needs ``ck_root``).

    ``headers`` is an edited copy that replaces our own headers, for an upstream that has some.
    """
    if headers is not None:
        _check_headers(name, headers)
    if name == "checkout":
        if ck_root is None:
            raise SetupError("upstream 'checkout' needs a tree: set CK_ROOT or pass --ck-root DIR.", kind="ck-tree")
        tree = checkout(ck_root, cache)
        for remark in tree.remarks:
            log.info(f"note: {remark}")
        return tree
    package = check_upstream(name)
    root, included = _unpack(package, cache)
    tree = Tree(
        name=name,
        root=root,
        dialect=package.dialect,
        identity=f"{package.package} {package.version} sha256:{package.sha256}",
        selector_takes_base=_selector_takes_base([root / FMHA / "fmha_fwd.hpp"]),
        headers=included,
    )
    return _with_own_headers(tree, headers or _KERNELS / package.headers) if package.headers else tree


def _check_headers(name: str, folder: Path) -> None:
    """Raise UsageError or UnknownWordError: the upstream has no headers of ours, or the folder contains none."""
    if name == "checkout" or not check_upstream(name).headers:
        names = ", ".join(each for each, package in upstreams().items() if package.headers)
        raise UsageError(f"--headers: upstream {name} has no headers of ours. Those that have: {names}.")
    if not (folder / "fmha_fwd.hpp").is_file():
        original = _KERNELS / check_upstream(name).headers
        raise UsageError(f"--headers: {folder} holds no fmha_fwd.hpp. Give a copy of {original}.")


def _with_own_headers(tree: Tree, folder: Path) -> Tree:
    """Return the tree with a folder of our own headers first. Their load selector takes both base addresses."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return replace(
        tree,
        identity=f"{tree.identity}{OWN_HEADERS}sha256:{_digest_of(folder, files)}",
        selector_takes_base=True,
        headers=(*tree.headers, *states(files)),
        own=(folder,),
    )


def checkout(ck_root: Path, cache: Path | None = None) -> Tree:
    """Return the tree of a checkout: a CK repository, or rocm-libraries with projects/composablekernel.

    Words of the codegen give its dialect. With a ``cache`` the names that the codegen lists are compared, too, and kept
    there. Another dialect is taken if fewer names differ from its own, or if the words fit none.
    """
    try:
        return _checkout(ck_root, cache)
    except OSError as error:
        raise SetupError(
            f"{error.filename or ck_root}: this file of the CK tree can't be read: {error.strerror}. Make it readable.",
            kind="ck-tree",
        ) from error


def _checkout(ck_root: Path, cache: Path | None) -> Tree:
    for root in (ck_root, ck_root / "projects" / "composablekernel", ck_root / "composable_kernel"):
        if (root / FMHA / "generate.py").is_file() and (root / "include/ck_tile").is_dir():
            break
    else:
        raise SetupError(
            f"{ck_root}: no Composable Kernel tree. Expected {FMHA}/generate.py and include/ck_tile there or below "
            "projects/composablekernel. Point CK_ROOT or --ck-root at the root of such a checkout.",
            kind="ck-tree",
        )
    root = Path(os.path.realpath(root))
    if special := next((file for file in sorted((root / FMHA).rglob("*")) if is_special(file)), None):
        # the codegen would wait for it without end
        raise SetupError(f"{special}: a pipe or a device is in the CK tree. Remove it.", kind="ck-tree")
    contained = [feature for feature, marks in features().items() if fits(marks, root / FMHA)]
    fitting, ages = [], []
    for stored in map(dialect, dialect_names()):
        if stored.detection is None or stored.features:  # features are found file by file
            continue
        ages.append(with_features(contained) if stored.name == feature_table().record.base else stored.name)
        fitting += ages[-1:] if fits(stored.detection, root / FMHA) else []
    closure = include_closure(root)
    headers = states(sorted(closure))  # before they are read, so that changes meanwhile are noticed
    tree = Tree(
        name="checkout",
        root=root,
        dialect=fitting[0] if len(fitting) == 1 else "",
        identity=f"checkout sha256:{digest(root, closure)}",
        selector_takes_base=_selector_takes_base(closure),
        headers=headers,
    )
    own_dialect = dialect(
        _dialect_by_names(tree, fitting, ages, cache) if cache else tree.dialect or _refuse(tree, fitting, ages)
    )
    codegen = root / FMHA / own_dialect.detection.file if own_dialect.detection else None
    return replace(
        tree,
        dialect=own_dialect.name,
        newer=(
            *_newer_words(own_dialect, closure, root),
            *(_newer_targets(own_dialect, codegen, root) if codegen else ()),
        ),
    )


def _dialect_by_names(tree: Tree, fitting: Sequence[str], candidates: Sequence[str], cache: Path) -> str:
    """Return the candidate whose names differ least from the list of a tree's codegen. Of equals the tree's own wins.

    A candidate that has none of the names is no better than the tree's own, however few names it has.
    """
    own, archs = tree.dialect, tuple(compute_units())
    best, least = own, None
    try:
        for name in dict.fromkeys([own, *candidates] if own else candidates):
            difference = difference_from_dialect(replace(tree, dialect=name), ("batch_prefill",), archs, cache)
            if name == own or (difference.common and (least is None or difference.count < least.count)):
                best, least = name, difference
            if least and least.same:
                break
    except UpstreamError as error:
        return own or _refuse(tree, fitting, candidates, f" Its names can't be compared: {error}")
    if least is None:
        _refuse(tree, fitting, candidates, " None of the names that it lists is in one of them.")
    if best != own:
        log.info(
            f"note: {tree.root} is taken for dialect {best}, although it reads as {own or 'none alone'}: the names "
            f"that its codegen lists are closest to {best}'s ({next(iter(least.lines()), 'no difference')})."
        )
    return best


def _refuse(tree: Tree, fitting: Sequence[str], candidates: Sequence[str], reason: str = "") -> NoReturn:
    """Raise SetupError: a tree has no codegen of batch prefill, or its words fit no dialect, or more than one."""
    files = sorted({f"{FMHA}/{stored.detection.file}" for stored in map(dialect, candidates) if stored.detection})
    if not any((tree.root / file).is_file() for file in files):
        raise SetupError(
            f"{tree.root}: this tree has no batch-prefill codegen: {' or '.join(files)} is missing. "
            "Check out CK of June 2025 or later.",
            kind="ck-tree-version",
        )
    result = f"fits {len(fitting)} dialects ({', '.join(fitting)})" if fitting else "fits no dialect"
    raise SetupError(
        f"{tree.root}: this tree's batch-prefill codegen {result} of: {', '.join(candidates)}.{reason} "
        "A new version of CK needs a dialect file in matrix/dialects.",
        kind="ck-tree-version",
    )


def fits(marks: Detection, fmha: Path) -> bool:
    """True if the tree's file has the texts that a dialect or a feature requires, and none that it excludes."""
    file = fmha / marks.file
    if not file.is_file() or (marks.lacks_file and (fmha / marks.lacks_file).exists()):
        return False
    text = content(file).decode(errors="replace")
    return all(word in text for word in marks.has) and not any(word in text for word in marks.lacks)


def digest(root: Path, closure: Set[Path]) -> str:
    """Return the sha256 of the files that built sources include, :func:`include_closure`, and of the codegen.

    Editing a header that no FMHA kernel includes therefore rebuilds nothing.
    """
    return _digest_of(root, closure | {file for file in (root / FMHA).rglob("*.py") if file.is_file()})


def _digest_of(root: Path, files: Iterable[Path]) -> str:
    """Return the sha256 of the files' names below ``root`` and their bytes."""
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(os.fsencode(file.relative_to(root)) + b"\0")
        total.update(hashlib.sha256(content(file)).digest())
    return total.hexdigest()


def include_closure(root: Path) -> set[Path]:
    """Return the headers that built sources include, and what those include under any preprocessor condition."""
    pending = [root / name for name in _STARTS]
    seen: set[Path] = set()
    while pending:
        file = pending.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        for match in _INCLUDE.finditer(content(file)):
            name = os.fsdecode(match[1])
            pending += [root / "include" / name, file.parent / name, root / FMHA / name]
    return seen


def _selector_takes_base(headers: Iterable[Path]) -> bool:
    """True if one of the headers declares the selector of load modes with a parameter for K's base address."""
    return any(header.is_file() and _SELECTOR_WITH_BASE.search(content(header)) for header in headers)


def is_unpacked(package: PackagedUpstream, cache: Path) -> bool:
    """True if the package's tree is in the cache."""
    return os.path.exists(package_folder(package, cache) / package.tree / FMHA / "generate.py")  # noqa: PTH110 - never raises


def package_folder(package: PackagedUpstream, cache: Path) -> Path:
    """Return the folder of an unpacked package. It may be deleted at any time: the next use unpacks it again."""
    return cache / "upstream" / f"{package.base}-{package.version}-{package.sha256}"


def damage(package: PackagedUpstream, cache: Path) -> list[str]:
    """Return the files of an unpacked tree that are missing, unreadable, added or changed, as ``path: what``."""
    folder = package_folder(package, cache)
    try:
        lines = (folder / _CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return [f"{_CHECKSUMS}: {error.strerror}"]
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    complaints = []
    for name, digest in expected.items():
        try:
            if sha256_of(folder / name) != digest:
                complaints.append(f"{name}: changed")
        except OSError as error:
            complaints.append(f"{name}: {error.strerror}")
    # an added header hides another, and a truncated list misses some
    there = {os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names}  # noqa: PTH118
    return complaints + [f"{name}: added" for name in sorted(there - expected.keys() - {_CHECKSUMS})]


def _demand_whole(package: PackagedUpstream, cache: Path) -> None:
    """Raise TrustError if a file of the unpacked tree is not the package's."""
    if complaints := damage(package, cache):
        more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
        folder = package_folder(package, cache)
        raise TrustError(
            f"the unpacked tree of {package.package} {package.version} is damaged: {folder}: {complaints[0]}{more}. "
            f"Delete {folder}: it is unpacked again. To build a CK with changes of yours, copy "
            f"{folder / package.tree}, change the copy, and set CK_ROOT to it.",
            kind="checksum",
        )


def _unpack(package: PackagedUpstream, cache: Path) -> tuple[Path, tuple[State, ...]]:
    """Return the root of a whole unpacked tree and the states of its files."""
    folder = package_folder(package, cache)
    demand_private(cache)
    if not is_unpacked(package, cache):
        with hold_lock(Path(f"{folder}.lock"), _MEND), name_write_errors(folder, _MEND):
            if not is_unpacked(package, cache):
                _fetch(package, folder)
    headers = states(file for file in sorted((folder / package.tree).rglob("*")) if file.is_file())
    _demand_whole(package, cache)
    return folder / package.tree, headers


def _fetch(package: PackagedUpstream, folder: Path) -> None:
    """Download, check and unpack into a folder beside ``folder``, then rename it."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
        archive = Path(beside) / package.file
        fetch_archive(package, archive)
        log.info(f"unpacking {package.file}")
        tree = Path(beside) / "tree"
        _extract(archive, tree, package.tree)
        if not (tree / package.tree / FMHA / "generate.py").is_file():
            raise ServiceError(
                f"{package.file}: holds no {package.tree}/{FMHA}. The upstreams table is wrong.", kind="download"
            )
        files = sorted(file for file in tree.rglob("*") if file.is_file())
        lines = "".join(f"{sha256_of(file)}  {file.relative_to(tree)}\n" for file in files)
        (tree / _CHECKSUMS).write_text(lines, encoding="utf-8")
        if folder.exists():  # a tree without its codegen: can't be used, must not be mixed
            shutil.rmtree(folder)
        tree.rename(folder)


def fetch_archive(package: PackagedUpstream, archive: Path) -> None:
    """Download a package's file to ``archive``. A file with another sha256 is removed."""
    from ckpm.kernels.upstream.package_index import (
        download,  # imported here: its HTTP client is a quarter of a command's start
    )

    log.info(f"downloading {package.package} {package.version} ({package.summary})")
    download(package, archive)
    actual = sha256_of(archive)
    if actual != package.sha256:
        archive.unlink()
        raise TrustError(
            f"{package.file}: sha256 is {actual}, pinned is {package.sha256} (matrix/upstreams.yaml). "
            "The file was thrown away. Check the package index that pip is configured for.",
            kind="checksum",
        )


def _extract(archive: Path, tree: Path, prefix: str) -> None:
    """Extract only the CK tree and its licences, a tenth of the package."""
    parts = tuple(f"{prefix}/{part}" for part in ("include/", "example/ck_tile/01_fmha/", "LICENSE"))
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(parts)]
            wheel.extractall(tree, names)  # noqa: S202 - the file's sha256 was checked
        return
    with tarfile.open(archive) as sdist:  # plain files one by one: the filters of tarfile are not in Python 3.11.2
        for member in sdist:
            is_wanted = member.isfile() and member.name.startswith(parts) and "/../" not in member.name
            if is_wanted and (source := sdist.extractfile(member)):
                (tree / member.name).parent.mkdir(parents=True, exist_ok=True)
                (tree / member.name).write_bytes(source.read())


def _newer_words(dialect: Dialect, files: Iterable[Path], root: Path) -> tuple[str, ...]:
    """Return a line for each enumerator and template parameter in C++ ``files`` that the dialect doesn't have."""
    wanted = (*dialect.enumerators, *dialect.parameters)
    if not wanted:
        return ()
    lines: list[str] = []
    undefined = set(dialect.parameters)
    for file in sorted(files):
        text = content(file).decode(errors="replace")
        if any(name in text for name in wanted):
            # as many empty lines in its place, so that line numbers stay the same
            code = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
            path = str(file.relative_to(root))
            undefined -= {name for name in undefined if re.search(rf"struct\s+{name}(?!\w)", code)}
            lines += [*_enumerators(dialect, code, path), *_parameters(dialect, code, path)]
    if undefined:
        raise SetupError(
            f"{root}: the codegen is of dialect {dialect.name}, but no header that its kernels include defines "
            f"{', '.join(sorted(undefined))}: codegen and headers are of different versions of CK. Check out all files "
            "of one version.",
            kind="ck-tree-version",
        )
    return tuple(lines)


def _newer_targets(dialect: Dialect, codegen: Path, root: Path) -> tuple[str, ...]:
    """Return a line for each arch that batch prefill's codegen names and the dialect lacks."""
    if not dialect.targets:
        return ()
    text = content(codegen).decode(errors="replace")
    positions = {match[1]: match.start() for match in reversed([*_TARGET.finditer(text)])}
    return tuple(
        f"{name} ({_at(str(codegen.relative_to(root)), text, start)})"
        for name, start in sorted(positions.items())
        if not name.startswith(dialect.targets)
    )


def _enumerators(dialect: Dialect, code: str, path: str) -> Iterator[str]:
    for enumeration in _ENUMERATION.finditer(code):
        known_members = dialect.enumerators.get(enumeration[1])
        members = [member for part in enumeration[2].split(",") if (member := part.partition("=")[0].strip())]
        at = _at(path, code, enumeration.start())
        yield from (
            f"{enumeration[1]}::{member} ({at})" for member in members if known_members and member not in known_members
        )


def _parameters(dialect: Dialect, code: str, path: str) -> Iterator[str]:
    """Yield each further template parameter that has a default. Our text leaves it out."""
    for name, parameters in dialect.parameters.items():
        template = re.search(rf"template\s*<([^;{{}}]*)>\s*struct\s+{name}(?!\w)", code)
        there = (
            [match for part in template[1].split(",") if (match := _PARAMETER.search(part.strip()))] if template else []
        )
        if not template or len(there) <= len(parameters):  # the same under other names
            continue
        at = _at(path, code, template.end())
        for index, parameter in enumerate(there):
            if parameter[1] in parameters:
                continue
            if index < len(parameters) or not parameter[2]:
                raise SetupError(
                    f"{at}: {name} has a parameter {parameter[1]} that dialect {dialect.name} doesn't know, and that "
                    "can't be left out: no kernel that names it would compile. A new version of CK needs a file "
                    "in matrix/dialects.",
                    kind="ck-tree-version",
                )
            yield f"another {parameter[1]} of {name} than its default ({at})"


def _at(path: str, text: str, start: int) -> str:
    return f"{path}:{text.count(chr(10), 0, start) + 1}"
