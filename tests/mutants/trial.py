"""One mutant: the static checks first, then the smoke cases of its kernel, the cheapest first, until one sees it."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.launch.device import EmulatedDevice
from matrix.keys import Key
from matrix.problems.case import SUITES, wave_instructions
from matrix.problems.ledger import read_ledger, source
from matrix.problems.problem import serves
from tests.gpu import suites
from tests.gpu.checks import Bench, Result, run_case
from tests.gpu.errors import CasesFailedError
from tests.gpu.suites import Case, LocatedLibrary, manifest_keys
from tests.mutants import descriptors, probing
from tests.mutants.arguments import PROMISED
from tests.mutants.drawing import Kernel, Mutant
from tests.mutants.planting import Change, changed
from tests.mutants.programs import Programs

STATIC, CRASH, HANG = "static checks", "crash", "hang"
_SLOWNESS = 4  # a probe takes up to so many times as long as the case alone
_MOST_INSTRUCTIONS = 2_000_000  # of a wave: the longest smoke case takes 60,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a process of trials works on."""

    library: Path
    arch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """``killed_by``: a suite, the static checks, or how the process ended; empty if nothing saw it. ``how``: the case
    and what it said, or why nothing saw it.
    """

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
        self.bench = self._loaded(setup.library)
        self.as_built: dict[str, Result] = {}
        every = [case for suite in SUITES for case in suites.cases(suite, "smoke", "emulator")]
        signed = suites.with_signatures(every, self.ledger, self.upstream, setup.arch)
        self.cases = by_kernel(signed, self.bench.keys)

    def _loaded(self, library: Path) -> Bench:
        loaded = self.device.load(library)
        keys = manifest_keys(self.built.manifest_file, loaded.kernels)
        return Bench(device=self.device, library=loaded, keys=keys)

    def tried(self, mutant: Mutant, begin: Callable[[Case], None] = lambda case: None) -> Tried:
        """The mutant's fate; ``begin`` is called before each case.

        Raises CasesFailedError: a case that sees it is not in order without it either.
        """
        symbol, change = self.symbols[mutant.kernel], self._change(mutant)
        if change is None:
            file = self.programs.mutant_descriptor(symbol, mutant.at, mutant.size, mutant.raw)
        elif found := self.programs.findings(symbol, change):
            return Tried(mutant=mutant, killed_by=STATIC, how=found[0])
        else:
            file = self.programs.mutant(symbol, change)
        bench = self._loaded_bytes(file)
        cases, results = self.cases.get(mutant.kernel, []), []
        for count, case in enumerate(cases, 1):
            begin(case)
            result = self._run(bench, case)
            good, said = self._judged(case, result)
            if not good:
                self._demand_order(case)
                suite = case.problem.suite
                return Tried(mutant=mutant, killed_by=suite, how=f"{case.name}: {said}", cases=count)
            results.append(result)
        how = self._why(symbol, change, cases, results, begin)
        return Tried(mutant=mutant, killed_by="", how=how, cases=len(cases))

    def _change(self, mutant: Mutant) -> Change | None:
        """None for one of the descriptor."""
        if mutant.kind == descriptors.KIND:
            return None
        symbol = self.symbols[mutant.kernel]
        before = self.programs.kernels()[symbol].of_kernel(symbol)[mutant.at]
        change = changed(mutant.kind, mutant.at, before, mutant.raw)
        assert change is not None  # it was drawn from such
        return change

    def _loaded_bytes(self, library: bytes) -> Bench:
        with tempfile.TemporaryDirectory(prefix="ckpm-mutant-") as folder:
            file = Path(folder) / "libckpm.so"
            file.write_bytes(library)
            return self._loaded(file)

    def _why(
        self,
        symbol: str,
        change: Change | None,
        cases: Sequence[Case],
        results: Sequence[Result],
        begin: Callable[[Case], None],
    ) -> str:
        """Why no case saw it, as far as running tells."""
        pairs = [(self._as_built(case), result) for case, result in zip(cases, results, strict=True)]
        if change is None:
            return f"no case needs what it takes away: {probing.results(pairs)}"
        observed = self._observed(symbol, change, cases, begin)
        if change.kind == "barrier" and observed.executions:
            return self._without_barrier(symbol, change, cases, begin, observed.executions)
        return probing.cause(change, observed, pairs)

    def _observed(
        self, symbol: str, change: Change, cases: Sequence[Case], begin: Callable[[Case], None]
    ) -> probing.Observed:
        """What it would have changed in all cases, each run once."""
        bench = self._loaded_bytes(self.programs.probed(symbol, change))
        self.device.reset_probe()
        for case in cases:
            begin(dataclasses.replace(case, variants=case.variants * _SLOWNESS))
            run_case(bench, case.problem, (probing.options(change),))
        return probing.Observed.of(self.device.probe())

    def _without_barrier(
        self, symbol: str, change: Change, cases: Sequence[Case], begin: Callable[[Case], None], executions: int
    ) -> str:
        """A barrier orders what waves do in LDS, and changes no value: all cases once more, looking for races."""
        bench = self._loaded_bytes(self.programs.mutant(symbol, change))
        for case in cases:
            begin(case)
            result = run_case(bench, case.problem, ({"lds_races": True},))
            if result.fault.get("kind") == "race":
                return f"a race in {case.name}, which the sanitize suite doesn't have: {result.message}"
        return f"no race without it in {executions} executions of {len(cases)} cases"

    def _as_built(self, case: Case) -> Result:
        if case.name not in self.as_built:
            self.as_built[case.name] = self._run(self.bench, case)
        return self.as_built[case.name]

    def _demand_order(self, case: Case) -> None:
        """Raises CasesFailedError: the unchanged library's case is not in order."""
        good, said = self._judged(case, self._as_built(case))
        if not good:
            raise CasesFailedError(f"{case.name} is not in order without a mutant either: {said}")

    def _run(self, bench: Bench, case: Case) -> Result:
        return run_case(bench, case.problem, case.variants, case.signatures)

    def _judged(self, case: Case, result: Result) -> tuple[bool, str]:
        """Whether the case is in order, and what is said of it."""
        judged = suites.judge(case, dataclasses.asdict(result), self.ledger, self.upstream, self.arch)
        return judged.verdict.good, suites.message(judged)


def symbols(library: LocatedLibrary, arch: str) -> dict[str, str]:
    """Kernel -> its symbol in the code objects."""
    return {name: one.archs[arch].symbol for name, one in library.manifest.kernels.items() if arch in one.archs}


def kernels_of(library: LocatedLibrary, arch: str) -> dict[str, Kernel]:
    """The kernels of a built library, by name."""
    codes = Programs(library.library, arch).kernels()
    promised = PROMISED.get(library.manifest.upstream, {})
    built = {name: codes[symbol].kernel(symbol, arch) for name, symbol in symbols(library, arch).items()}
    return {name: dataclasses.replace(kernel, promised=promised) for name, kernel in built.items()}


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
