"""The trial of one mutant: the static checks, then the smoke cases of its kernel, the cheapest first."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.launch.counters import executed_instructions
from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.errors import CheckFailedError
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SUITES, wave_instructions
from ckpm.matrix.problems.ledger import read_ledger, source
from ckpm.matrix.problems.serving import serves
from ckpm.suites import suites
from ckpm.suites.checks import CaseBench, Result, run_case
from ckpm.suites.suites import Case, LocatedLibrary, manifest_keys
from tests.mutants import descriptors
from tests.mutants.drawing import Kernel, Mutant
from tests.mutants.planting import Change, make_change
from tests.mutants.programs import Programs

STATIC, COUNTS, CRASH, HANG = "static checks", "counts", "crash", "hang"
_MOST_INSTRUCTIONS = 2_000_000  # executed by a wave; the longest smoke case executes 60,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The library that a process tests."""

    library: Path
    arch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``killed_by`` is STATIC, a suite, COUNTS, CRASH or HANG, or empty for a survivor.

    ``how`` is the message of the check that detected the mutant. For a survivor it describes the difference of the
    results, or contains the reason of its excuse.
    """

    mutant: Mutant
    killed_by: str
    how: str = ""
    cases: int = 0
    excused: bool = False


class Tester:
    """The emulated device of this process and the library whose mutants it runs."""

    def __init__(self, setup: Setup) -> None:
        self.arch, self.built = setup.arch, suites.read_library(setup.library, foreign=True)
        self.programs = Programs(setup.library, setup.arch)
        self.symbols = symbols(self.built, setup.arch)
        self.device = EmulatedDevice(
            setup.arch, threads=1, program_builder=self.programs.build, max_instructions=_MOST_INSTRUCTIONS
        )
        manifest = self.built.manifest
        self.ledger, self.upstream = read_ledger(), source(manifest.upstream, manifest.dialect)
        self.bench = self._load(setup.library)
        self.built_results: dict[str, Result] = {}
        every = [case for suite in SUITES for case in suites.cases(suite, "smoke", "emulator")]
        signed = suites.with_signatures(every, self.ledger, self.upstream, setup.arch)
        self.cases = by_kernel(signed, self.bench.keys)

    def _load(self, library: Path) -> CaseBench:
        loaded = self.device.load(library)
        keys = manifest_keys(self.built.manifest_file, loaded.kernels)
        return CaseBench(device=self.device, library=loaded, keys=keys)

    def test(self, mutant: Mutant, begin: Callable[[Case], None] = lambda case: None) -> Trial:
        """Test a mutant. ``begin`` is called before each case.

        Raises:
            CheckFailedError: a case fails without the mutant, too.
        """
        symbol, change = self.symbols[mutant.kernel], self._change(mutant)
        if change is None:
            file = self.programs.mutant_descriptor(symbol, mutant.at, mutant.size, mutant.raw)
        elif findings := self.programs.findings(symbol, change):
            return Trial(mutant=mutant, killed_by=STATIC, how=findings[0])
        else:
            file = self.programs.mutant(symbol, change)
        bench = self._load_bytes(file)
        cases, results = self.cases.get(mutant.kernel, []), []
        for count, case in enumerate(cases, 1):
            begin(case)
            result = self._run(bench, case)
            good, message = self._judge(case, result)
            if not good:
                self._check_built(case)
                suite = case.problem.suite
                return Trial(mutant=mutant, killed_by=suite, how=f"{case.name}: {message}", cases=count)
            results.append(result)
        pairs = [(self._run_built(case), result) for case, result in zip(cases, results, strict=True)]
        before, after = (sum(executed_instructions(pair[side].counters) for pair in pairs) for side in (0, 1))
        if before != after:
            how = f"{after} wave-instructions are executed instead of {before}"
            return Trial(mutant=mutant, killed_by=COUNTS, how=how, cases=len(cases))
        return Trial(mutant=mutant, killed_by="", how=compare_results(pairs), cases=len(cases))

    def _change(self, mutant: Mutant) -> Change | None:
        """The changed instruction; None if the descriptor is changed."""
        if mutant.kind == descriptors.KIND:
            return None
        symbol = self.symbols[mutant.kernel]
        before = self.programs.kernels()[symbol].of_kernel(symbol)[mutant.at]
        change = make_change(mutant.kind, mutant.at, before, mutant.raw)
        assert change is not None  # as when it was drawn
        return change

    def _load_bytes(self, library: bytes) -> CaseBench:
        with tempfile.TemporaryDirectory(prefix="ckpm-mutant-") as folder:
            file = Path(folder) / "libckpm.so"
            file.write_bytes(library)
            return self._load(file)

    def _run_built(self, case: Case) -> Result:
        """The result of the unchanged library."""
        if case.name not in self.built_results:
            self.built_results[case.name] = self._run(self.bench, case)
        return self.built_results[case.name]

    def _check_built(self, case: Case) -> None:
        good, message = self._judge(case, self._run_built(case))
        if not good:
            raise CheckFailedError(f"{case.name} fails without a mutant, too: {message}", kind="cases")

    def _run(self, bench: CaseBench, case: Case) -> Result:
        return run_case(bench, case.problem, case.variants, case.signatures)

    def _judge(self, case: Case, result: Result) -> tuple[bool, str]:
        """Return True if the case passes, and the message of its verdict."""
        judged = suites.judge(case, dataclasses.asdict(result), self.ledger, self.upstream, self.arch)
        return judged.verdict.good, suites.message(judged)


def compare_results(pairs: Sequence[tuple[Result, Result]]) -> str:
    """Describe how the results of the cases differ without and with a change."""
    numbers = sum((built.lines, built.tolerance_used) != (other.lines, other.tolerance_used) for built, other in pairs)
    if numbers:
        return f"other numbers within the tolerance, in {numbers} cases"
    if counts := sum(built.counters != other.counters for built, other in pairs):
        return f"the same numbers, other counts of instructions or bytes in {counts} cases"
    return "the same numbers and counts"


def symbols(library: LocatedLibrary, arch: str) -> dict[str, str]:
    """The symbol of each kernel in the code objects."""
    return {
        name: kernel.archs[arch].symbol for name, kernel in library.manifest.kernels.items() if arch in kernel.archs
    }


def kernels_of(library: LocatedLibrary, arch: str) -> dict[str, Kernel]:
    """The kernels of a built library, by name."""
    codes = Programs(library.library, arch).kernels()
    return {name: codes[symbol].kernel(symbol) for name, symbol in symbols(library, arch).items()}


def by_kernel(cases: Iterable[Case], keys: Sequence[Key]) -> dict[str, list[Case]]:
    """The cases that launch each kernel, by its name, the cheapest first. ``keys`` are in dispatch order.

    Dispatch takes the first kernel that serves a problem: only the smoke problems that test other tiles have so many
    blocks that it takes another one.
    """
    by_name: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: wave_instructions(case.problem) * len(case.variants)):
        first = next((key.name for key in keys if case.problem.expect == "ok" and serves(key, case.problem)), None)
        if first is not None:
            by_name.setdefault(first, []).append(case)
    return by_name
