"""The decode kernels as files, ``<arch>/decode/``: gates and devices read them without Triton.

``decode.json`` lists the compiled candidates of each problem (ckpm/decode/problem.py) and its two code objects.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.bounded import read_bytes
from ckpm.base.display import show
from ckpm.base.errors import MeasureError, RecordError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, Value, as_text
from ckpm.decode.attention import Stages, compiled_stages
from ckpm.decode.guard.compiling import Code, demand_triton
from ckpm.decode.problem import DecodeProblem, problems
from ckpm.matrix.dialects import check_built_arch
from ckpm.matrix.sessions import sessions

FOLDER, MANIFEST = "decode", "decode.json"
_FORMAT = 1
_AGAIN = "Build again: nox -s build-decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltDecode:
    """Kernels of an arch. ``compiler`` is Triton with its version. ``stages`` are by problem, in the table's order."""

    arch: str
    compiler: str
    stages: Mapping[str, Stages]

    def identity(self) -> dict[str, str]:
        """Facts that must equal the baseline's. The kernels' text is left out, because the gate judges it."""
        return {
            "arch": self.arch,
            "toolchain": "triton",
            "identity": self.compiler,
            "upstream": FOLDER,
            "upstream_identity": "kernels/decode of this repository",  # the former folder, which baselines contain
            "selection": ", ".join(self.stages),
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    archs = ", ".join(sessions().emulated)
    parser.add_argument("--arch", action="append", help=f"may be given again (default: {archs})")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Build the decode kernels of each arch."""
    demand_triton()
    for arch in args.arch or sessions().emulated:
        check_built_arch(arch)
        file = manifest_path(args.work, arch)
        write(file, arch, {problem: compiled_stages(problem.candidates(arch)) for problem in problems(arch)})
        show(f"{len(problems(arch))} problems of {arch}: {file}")
    return 0


def manifest_path(work: Path, arch: str) -> Path:
    return work / "build" / arch / FOLDER / MANIFEST


def code_file(folder: Path, name: str, stage: str) -> Path:
    return folder / f"{name}.{stage}.hsaco"


def write(file: Path, arch: str, compiled: Mapping[DecodeProblem, Stages]) -> None:
    """Write the code objects, then the file that names them."""
    import triton

    rows = {}
    for problem, stages in compiled.items():
        each = {"attention": stages.attention, "reduction": stages.reduction}
        for stage, code in each.items():
            write_atomically(code_file(file.parent, problem.name, stage), code.binary)
        identities = [candidate.identity for candidate in problem.candidates(arch)]
        rows[problem.name] = {"identities": identities, **{stage: _row(code) for stage, code in each.items()}}
    document = {"format": _FORMAT, "arch": arch, "compiler": f"triton {triton.__version__}", "problems": rows}
    write_atomically(file, as_text(document))


def read(file: Path, arch: str) -> BuiltDecode:
    """Read the files of :func:`write`.

    Raises:
        InconclusiveError: the kernels of the arch are not built, or are built for other problems.
    """
    problems_by_name = {problem.name: problem for problem in problems(arch)}
    if not file.is_file():
        raise MeasureError(f"{file}: no decode kernels were built for {arch}. Build them: nox -s build-decode")
    root = Source(location=file, what="built decode kernels", remedy=_AGAIN, error=RecordError).read()
    root.allow(("format", "arch", "compiler", "problems"))
    if root.get("format").whole() != _FORMAT or root.get("arch").text() != arch:
        raise root.fail(f"no decode kernels of {arch} in format {_FORMAT}")
    rows = root.get("problems").map(lambda row: row)
    for name in {*rows, *problems_by_name}:
        now = (
            [candidate.identity for candidate in problems_by_name[name].candidates(arch)]
            if name in problems_by_name
            else None
        )
        if name not in rows or [identity.text() for identity in rows[name].get("identities").items()] != now:
            raise MeasureError(f"{file}: '{name}' is not what ckpm/decode/problem.py names today. {_AGAIN}.")
    stages = {
        name: Stages(attention=_code(file, name, "attention", row), reduction=_code(file, name, "reduction", row))
        for name, row in ((name, rows[name]) for name in problems_by_name)
    }
    return BuiltDecode(arch=arch, compiler=root.get("compiler").text(), stages=stages)


def _row(code: Code) -> dict[str, Any]:
    digest = hashlib.sha256(code.binary).hexdigest()
    return {"sha256": digest, "symbol": code.symbol, "lds_bytes": code.lds_bytes}


def _code(manifest: Path, name: str, stage: str, row: Value) -> Code:
    stored = row.get(stage)
    file = code_file(manifest.parent, name, stage)
    try:
        binary = read_bytes(file)
    except (OSError, ValueError) as error:
        raise stored.fail(f"{file.name} can't be read: {error}") from error
    if hashlib.sha256(binary).hexdigest() != stored.get("sha256").text():
        raise stored.get("sha256").fail(f"{file.name} has other bytes")
    return Code(binary=binary, symbol=stored.get("symbol").text(), lds_bytes=stored.get("lds_bytes").count())
