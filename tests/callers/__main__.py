"""``python -m tests.callers --aiter CLONE --flashinfer CLONE --sglang FOLDER --vllm FOLDER`` on the emulated gfx950.

Runs test files of clones, and backends of unpacked packages.

Builds the kernels first: half an hour on two idle processors, if no build has left their objects in the cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase

from ckpm.base.entry import exit_code
from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.kernels.code.emulated import translated_errors
from conformance.stored import PASSED, UNSUPPORTED, WRONG, compare
from tests.callers.table import ARCH, Caller, callers
from tests.programs.conformance.tables import OUTCOMES

HERE = Path(__file__).parent
RESULTS = Path("build/callers")


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m tests.callers", allow_abbrev=False)
    for clone, files in {caller.clone: caller.files for caller in callers().values()}.items():
        arguments.add_argument(
            f"--{clone}", type=Path, metavar="FOLDER", help=f"a clone of {clone}, for {', '.join(files)}"
        )
    arguments.add_argument(
        "--row", choices=callers(), help="one row of callers.yaml (default: all of the named clones)"
    )
    arguments.add_argument("--cases", type=int, help="size of the samples (default: the stored ones)")
    arguments.add_argument("--seed", type=int, help="of the samples; without --cases and --seed outcomes are compared")
    arguments.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    arguments.add_argument("--libraries", type=Path, help="a folder of libraries to use instead of building them")
    arguments.add_argument("--accept", action="store_true", help="store the outcomes of the samples")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return exit_code(lambda: run(args))


def run(args: argparse.Namespace) -> int:
    """Run the files of the given clones. Return 1 if an outcome differs from the stored ones, or is wrong."""
    chosen = {
        name: caller for name, caller in callers().items() if getattr(args, caller.clone) and args.row in (None, name)
    }
    if not chosen:
        raise UsageError("name a clone or an unpacked package: --aiter, --flashinfer, --sglang, --vllm.")
    if args.accept and (args.cases is not None or args.seed is not None):
        raise UsageError("--accept stores the usual samples: leave --cases and --seed away.")
    failed = 0
    for name, caller in chosen.items():
        libraries = args.libraries or build(name, caller)
        seen = outcomes(name, caller, getattr(args, caller.clone), libraries, args)
        print_summary(name, seen)
        stored = OUTCOMES / f"caller-{name}.yaml"
        if args.cases is None and args.seed is None:
            with translated_errors():
                failed |= compare(stored, ARCH, seen, accept=args.accept)
        else:
            failed |= any(outcome == WRONG for outcome, _ in seen.values())
    return int(failed)


def build(name: str, caller: Caller) -> Path:
    """Build the libraries of a caller's kernels, with objects of the user's cache; return their folder."""
    folder = RESULTS / name
    for at, where in enumerate(caller.kernels):
        options = ("--arch", ARCH, "--upstream", "ckpm", "--tier", "full", "--work", str(folder / str(at)))
        subprocess.run([sys.executable, "-m", "ckpm", "build", *options, "--where", where], check=True)
    return folder


def outcomes(
    name: str, caller: Caller, clone: Path, libraries: Path, args: argparse.Namespace
) -> Mapping[str, tuple[str, str]]:
    """Run a sample by pytest. Return outcome and detail by case; the file build/callers/NAME.xml has them as JUnit."""
    folder = HERE if caller.driven else clone.absolute()
    files = [str(folder / file) for file in caller.files]
    if missing := [file for file in files if not Path(file).is_file()]:
        raise UsageError(f"{', '.join(missing)} is not there: is {clone} a clone of {caller.clone}?")
    junit = (RESULTS / f"{name}.xml").absolute()
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    options = {
        "--cases": caller.cases if args.cases is None else args.cases,
        "--seed": caller.seed if args.seed is None else args.seed,
        "--caller": name, "--libraries": libraries, "--numprocesses": args.jobs,
    }  # fmt: skip
    arguments = [f"{option}={value}" for option, value in options.items()]
    command = [sys.executable, "-m", "pytest", "-p", "tests.callers.plugin", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-c", "/dev/null", "--rootdir", str(clone.absolute()), f"--junitxml={junit}", *arguments, *files]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode not in (0, 1) or not junit.is_file():
        raise CheckFailedError(f"pytest ended with {done.returncode} on {name}'s files; its output is above.")
    return {case.name: outcome(case) for suite in JUnitXml.fromfile(str(junit)) for case in suite}


def outcome(case: TestCase) -> tuple[str, str]:
    """A case of JUnit as the conformance table counts it, with the reason of one that did not run or was wrong."""
    for result in case.result:
        message = " ".join((result.message or "").split())
        if isinstance(result, Skipped):
            if message.startswith("refused: "):
                reason = message.removeprefix("refused: ").partition(". ")[0]  # without the remedy
                return UNSUPPORTED, reason.partition(" (")[0]
            return UNSUPPORTED, "skipped by the test itself"
        if isinstance(result, Failure | Error):
            return WRONG, message[:300]
    return PASSED, ""


def print_summary(name: str, seen: Mapping[str, tuple[str, str]]) -> None:
    """Print how many cases ended how, and the reasons."""
    print(f"{name}: {len(seen)} cases", flush=True)
    for (kind, detail), count in sorted(Counter(seen.values()).items()):
        print(f"  {count:6} {kind}{f': {detail}' if detail else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
