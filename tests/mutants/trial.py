"""One mutant: the static checks first, then the smoke cases of its kernel, the cheapest first, until one sees it."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.lowering.decode import Instruction
from kernels.launch.device import EmulatedDevice
from matrix.keys import Key
from matrix.problems.ledger import read_ledger, source
from matrix.problems.problem import SUITES, serves, wave_instructions
from tests.gpu import suites
from tests.gpu.checks import Bench, run_case
from tests.gpu.errors import CasesFailedError
from tests.gpu.suites import Case, LocatedLibrary, manifest_keys
from tests.mutants.planting import KINDS, changed, changes, changes_nothing
from tests.mutants.programs import Programs

STATIC = "static checks"
_MOST_INSTRUCTIONS = 2_000_000  # of a wave: the longest smoke case takes 60,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a process of trials works on."""

    library: Path
    arch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A kernel of the library with ``raw`` as the bits of instruction ``at``. ``text`` is for people."""

    kernel: str
    kind: str
    at: int
    raw: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """``killed_by``: a suite, or the static checks; empty if nothing saw it. ``how``: the case, and what it said."""

    mutant: Mutant
    killed_by: str
    how: str = ""
    cases: int = 0


class Trials:
    """The emulated device of this process, on which mutants of one library are run."""

    def __init__(self, setup: Setup) -> None:
        self.arch, self.built = setup.arch, suites.read_library(setup.library, foreign=True)
        self.programs = Programs(setup.library, setup.arch)
        self.symbols = symbols(self.built, setup.arch)
        self.device = EmulatedDevice(
            setup.arch, threads=1, program_builder=self.programs.build, max_instructions=_MOST_INSTRUCTIONS
        )
        manifest = self.built.manifest
        self.ledger, self.upstream = read_ledger(), source(manifest.upstream, manifest.dialect)
        self.bench, self.in_order = self._loaded(setup.library), set[str]()
        every = [case for suite in SUITES for case in suites.cases(suite, "smoke", "emulator")]
        signed = suites.with_signatures(every, self.ledger, self.upstream, setup.arch)
        self.cases = by_kernel(signed, self.bench.keys)

    def _loaded(self, library: Path) -> Bench:
        loaded = self.device.load(library)
        keys = manifest_keys(self.built.manifest_file, loaded.kernels)
        return Bench(device=self.device, library=loaded, keys=keys)

    def tried(self, mutant: Mutant) -> Tried:
        """The mutant's fate. Raises CasesFailedError: a case that sees it is not in order without it either."""
        symbol = self.symbols[mutant.kernel]
        before = self.programs.kernels()[symbol].of_kernel(symbol)[mutant.at]
        change = changed(mutant.kind, mutant.at, before, mutant.raw)
        assert change is not None  # it was drawn from such
        if found := self.programs.findings(symbol, change):
            return Tried(mutant=mutant, killed_by=STATIC, how=found[0])
        with tempfile.TemporaryDirectory(prefix="ckpm-mutant-") as folder:
            file = Path(folder) / "libckpm.so"
            file.write_bytes(self.programs.mutant(symbol, change))
            bench = self._loaded(file)
        cases = self.cases.get(mutant.kernel, [])
        for count, case in enumerate(cases, 1):
            good, said = self._run(bench, case)
            if not good:
                self._demand_order(case)
                suite = case.problem.suite
                return Tried(mutant=mutant, killed_by=suite, how=f"{case.name}: {said}", cases=count)
        return Tried(mutant=mutant, killed_by="", cases=len(cases))

    def _demand_order(self, case: Case) -> None:
        """Raises CasesFailedError: the unchanged library's case is not in order."""
        if case.name not in self.in_order:
            good, said = self._run(self.bench, case)
            if not good:
                raise CasesFailedError(f"{case.name} is not in order without a mutant either: {said}")
            self.in_order.add(case.name)

    def _run(self, bench: Bench, case: Case) -> tuple[bool, str]:
        """Whether the case is in order, and what is said of it."""
        reply = dataclasses.asdict(run_case(bench, case.problem, case.variants, case.signatures))
        judged = suites.judge(case, reply, self.ledger, self.upstream, self.arch)
        return judged.verdict.good, suites.message(judged)


def symbols(library: LocatedLibrary, arch: str) -> dict[str, str]:
    """Kernel -> its symbol in the code objects."""
    return {name: one.archs[arch].symbol for name, one in library.manifest.kernels.items() if arch in one.archs}


def draw(codes: Mapping[str, Sequence[Instruction]], seed: int, count: int) -> list[Mutant]:
    """``count`` mutants, none twice, or all that there are: kinds in turn, a kernel and a place of it by the seed.

    ``codes`` are the instructions of each kernel, by its name.
    """
    chance = random.Random(seed)
    left: dict[str, dict[str, list[tuple[int, int]]]] = {kind: {} for kind in KINDS}
    for name, instructions in sorted(codes.items()):
        for kind, at, raw in changes(instructions):
            left[kind].setdefault(name, []).append((at, raw))
    drawn: list[Mutant] = []
    while len(drawn) < count and (kinds := [kind for kind in KINDS if left[kind]]):
        for kind in kinds:
            name = chance.choice(list(left[kind]))
            at, raw = left[kind][name].pop(chance.randrange(len(left[kind][name])))
            if not left[kind][name]:
                del left[kind][name]
            change = changed(kind, at, codes[name][at], raw)
            if change is not None and len(drawn) < count and not changes_nothing(codes[name], change):
                drawn.append(Mutant(kernel=name, kind=kind, at=at, raw=raw, text=str(change)))
    return drawn


def kernels_of(library: LocatedLibrary, arch: str) -> dict[str, tuple[Instruction, ...]]:
    """The instructions of each kernel of a built library, by its name."""
    codes = Programs(library.library, arch).kernels()
    return {name: codes[symbol].of_kernel(symbol) for name, symbol in symbols(library, arch).items()}


def by_kernel(cases: Iterable[Case], keys: Sequence[Key]) -> dict[str, list[Case]]:
    """The cases that reach each kernel, by its name, the cheapest first. ``keys`` are in dispatch order.

    Of the kernels that serve a problem the first is taken, or named if the problem says its tile; of smoke problems
    none has so many blocks that dispatch passes it by, but for those that ask for just that.
    """
    found: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: wave_instructions(case.problem) * len(case.variants)):
        first = next((key.name for key in keys if case.problem.expect == "ok" and serves(key, case.problem)), None)
        if first is not None:
            found.setdefault(first, []).append(case)
    return found


_here: list[Trials] = []  # of a worker process


def start(setup: Setup) -> None:
    """In a new process of a pool."""
    _here.append(Trials(setup))


def tried_here(mutant: Mutant) -> Tried:
    return _here[0].tried(mutant)
