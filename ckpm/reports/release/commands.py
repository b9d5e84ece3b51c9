"""``ckpm qualify|verify-bundle``."""

from __future__ import annotations

import argparse
import datetime
import shutil
import tempfile
from pathlib import Path

import msgspec

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.errors import SetupError, TrustError, UnsignedError, UsageError, nearest_and_known
from ckpm.base.files import hold_lock, sha256_of
from ckpm.base.paths import PROJECT
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.kernels.code.toolchains import Toolchain, detect
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import check_built_arch, check_upstream
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.problems.ledger import LEDGER, read_ledger
from ckpm.reports.release import contents
from ckpm.reports.release.archive import unpack
from ckpm.reports.release.assemble import Release, assemble
from ckpm.reports.release.record import Facts
from ckpm.reports.release.run import (
    Checkout,
    QualificationPlan,
    demand_all,
    demand_pinned,
    demand_undamaged,
    read_checkout,
    run,
)
from ckpm.reports.release.sbom import direct_dependencies
from ckpm.reports.release.stages import StageTable, read_stages, steps
from ckpm.reports.release.statements import LOCAL_BUILDER, Origin
from ckpm.reports.release.verdict import Basis, ReleaseVerdict, examine, judge, known_defects, read_waivers
from ckpm.reports.release.verify import describe, rebuild, verify

OUTPUT = Path("build/release")


def add_qualify_options(qualify: argparse.ArgumentParser) -> None:
    qualify.add_argument("--tier", choices=TIERS, default="full", help="smoke is a rehearsal (default: %(default)s)")
    qualify.add_argument("--arch", action="append", metavar="ARCH", help="default: those of the table of stages")
    qualify.add_argument("--upstream", metavar="NAME", help="a package (default: that of the table of stages)")
    add_rocm_options(qualify, "toolchain")
    qualify.add_argument("--only", action="append", default=[], metavar="STAGE", help="run these, write no bundle")
    qualify.add_argument("--shard", action="append", type=Path, default=[], metavar="DIR", help="has what --only left")
    qualify.add_argument("--waivers", type=Path, metavar="FILE", help="which known defects are accepted, and by whom")
    qualify.add_argument("--image", action="append", default=[], metavar="NAME@sha256:..", help="that this runs in")
    qualify.add_argument("--key", type=Path, metavar="FILE", help="an SSH key to sign with")
    qualify.add_argument("--builder", default=LOCAL_BUILDER, metavar="URI", help="who builds (default: %(default)s)")
    qualify.add_argument("--invocation", default="", metavar="URI", help="this run (default: made of the files)")
    qualify.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    qualify.add_argument("--output", type=Path, metavar="DIR", help=f"(default: {OUTPUT} in --work)")
    qualify.set_defaults(run=run_qualify, log_to="stderr")


def add_verify_options(check: argparse.ArgumentParser) -> None:
    check.add_argument("bundle", type=Path, metavar="DIR|TAR")
    who = check.add_mutually_exclusive_group()
    who.add_argument("--allowed-signers", type=Path, metavar="FILE", help="as of ssh-keygen: one of them must sign")
    who.add_argument("--unsigned", action="store_true", help="accept a bundle whose signer is unknown")
    check.add_argument("--rebuild", action="store_true", help="build again in this clone and compare every byte")
    check.set_defaults(run=run_verify, log_to="stderr")


def run_qualify(args: argparse.Namespace) -> None:
    """Run every stage, judge the outputs, and write the bundle."""
    demand_pinned(args.image)
    table = read_stages()
    if unknown := sorted(set(args.only) - set(table.stages)):
        raise UsageError(f"--only {', '.join(unknown)}: no such stage{nearest_and_known(unknown[0], table.stages)}")
    read_ledger().check_dates(_today())
    waivers = read_waivers(args.waivers, known_defects(read_ledger())) if args.waivers else {}
    checkout = read_checkout(PROJECT)
    archs = tuple(check_built_arch(arch).name for arch in dict.fromkeys(args.arch or table.archs))
    facts, toolchain = _facts(args, checkout, args.upstream or table.upstream)
    planned = steps(table, archs, upstream=facts.upstream, tier=facts.tier, toolchain=toolchain.name)
    work = args.work.absolute()
    with hold_lock(work / OUTPUT / ".lock", "name another --work"):
        plan = QualificationPlan(
            steps=planned, facts=facts, work=work, epoch=checkout.epoch, only=args.only, shards=tuple(args.shard)
        )
        records = run(plan)
        _demand_unchanged(checkout, facts)
        if args.only:
            show(f"{len(records)} of {len(planned)} stages passed; no bundle, since --only leaves stages out")
            return
        demand_all(planned, records)
        findings = examine(planned, records, lambda step, role: work / step.outputs[role])
        basis = Basis(
            facts=facts, epoch=checkout.epoch, archs=archs, toolchain=toolchain.name, images=tuple(sorted(args.image))
        )
        verdict = judge(basis, findings, waivers, today=_today())
        release = Release(
            steps=planned,
            records=records,
            verdict=verdict,
            work=work,
            tables=_tables(table, args.waivers),
            origin=_origin(args, checkout, toolchain),
            direct=direct_dependencies(PROJECT / "pyproject.toml"),
            key=args.key,
        )
        folder, tar = assemble(release, args.output or work / OUTPUT)
        verify(folder, None, PROJECT)  # nothing goes out that we would refuse
    _conclude(verdict, folder, tar)


def _conclude(verdict: ReleaseVerdict, folder: Path, tar: Path) -> None:
    show(verdict.text)
    for waiver in verdict.waived:
        show(f"  waived: {waiver.name}, by {waiver.accepted_by} until {waiver.until}: {waiver.reason}")
    for name in verdict.unneeded:
        show(f"  a needless waiver: {name}: no case ended so; remove it")
    show(f"{folder}\n{tar}")


def _facts(args: argparse.Namespace, checkout: Checkout, upstream: str) -> tuple[Facts, Toolchain]:
    """Check the upstream. Return the facts of the release, and its toolchain."""
    cache = settings.cache_folder()
    package = check_upstream(upstream)
    tree = locate(upstream, cache=cache)
    demand_undamaged(package, cache)
    toolchain = detect(args.toolchain, cache=cache)
    facts = Facts(
        commit=checkout.commit,
        tier=args.tier,
        upstream=upstream,
        upstream_identity=tree.identity,
        toolchain=toolchain.identity,
    )
    return facts, toolchain


def _demand_unchanged(checkout: Checkout, facts: Facts) -> None:
    """Check that the inputs did not change during the stages, which take hours."""
    if read_checkout(checkout.root).commit != checkout.commit:
        raise SetupError(
            f"{checkout.root}: another commit was checked out meanwhile. Qualify that one again.", kind="dirty"
        )
    demand_undamaged(check_upstream(facts.upstream), settings.cache_folder())


def _tables(stages: StageTable, waivers: Path | None) -> dict[str, bytes]:
    """The tables of a bundle. Its stages are those of every suite."""
    files = {contents.LEDGER: LEDGER, contents.REQUIREMENTS: PROJECT / "requirements.txt"}
    files |= {contents.WAIVERS: waivers} if waivers else {}
    return {contents.STAGES: msgspec.yaml.encode(stages), **{name: file.read_bytes() for name, file in files.items()}}


def _origin(args: argparse.Namespace, checkout: Checkout, toolchain: Toolchain) -> Origin:
    """The origin of the bundle."""
    program = shutil.which(toolchain.compiler[0])
    if program is None:
        raise SetupError(f"{toolchain.compiler[0]}: gone since the stages ran. Install it again.", kind="toolchain")
    return Origin(
        builder=args.builder,
        compiler_sha256=sha256_of(Path(program)),
        source=checkout.source,
        invocation=args.invocation,
    )


def run_verify(args: argparse.Namespace) -> None:
    """Verify a bundle, and build it again if ``--rebuild`` is set."""
    with tempfile.TemporaryDirectory(prefix="ckpm-") as temporary:
        folder = args.bundle
        epoch = None
        if args.bundle.is_file() or args.bundle.suffix == ".tar":
            folder, epoch = unpack(args.bundle, Path(temporary))
        verified = verify(folder, args.allowed_signers, PROJECT)
        if epoch not in (None, verified.verdict.epoch):
            raise TrustError(
                f"{args.bundle}: its files are of second {epoch}, the commit is of {verified.verdict.epoch}.",
                kind="archive",
            )
        show("\n".join(describe(verified)))
        if not verified.signer and not args.unsigned:
            raise UnsignedError(
                f"{args.bundle}: in order, but its signer is unknown. Name who may sign it with "
                "--allowed-signers FILE, or accept it with --unsigned.",
                kind="signature",
            )
        if args.rebuild:
            count = rebuild(verified, read_checkout(PROJECT))
            show(f"built again: {count} files are equal byte for byte")


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()
