"""``ckpm validate FILE`` and ``validate --kernel NAME``: what is wrong with a configuration or a kernel."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.matrix.configurations.configuration import read_configuration
from ckpm.matrix.configurations.report import Finding, Report, judge, judge_kernel
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.options import add_dialect_options, dialect_from


def add_validate_options(parser: argparse.ArgumentParser) -> None:
    add_dialect_options(parser)
    parser.add_argument("--arch", default=None, help="of --kernel (default: the last that has such kernels)")
    parser.add_argument("--kernel", default=None, metavar="NAME", help="judge this kernel instead of a file")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(default: %(default)s)")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a configuration, JSON or YAML")


def validate(args: argparse.Namespace) -> Report:
    """The report that the options ask for. A file's kernel is looked for in every dialect, or in the one named.

    Raises:
        InputError: the file can't be read. UnknownWordError, NameSyntaxError: of --kernel.
        UsageError: neither or both of FILE and --kernel; --arch with a file, which has its own.
        UnknownWordError, TableError.
    """
    if (args.file is None) == (args.kernel is None):
        raise UsageError("validate: give either a FILE or --kernel NAME.")
    if args.kernel is not None:
        return judge_kernel(dialect_from(args), args.kernel, args.mask, args.arch)
    if args.arch is not None:
        raise UsageError("validate FILE: --arch belongs to --kernel; a configuration has its arch.")
    named = args.dialect is not None or args.upstream is not None
    dialects = [dialect_from(args)] if named else [dialect(name) for name in dialect_names()]
    return judge(str(args.file), read_configuration(args.file), dialects)


def written(report: Report, form: str) -> str:
    """The report as text or JSON."""
    if form == "json":
        return json.dumps(report.record(), indent=1) + "\n"
    lines = [f"{report.subject}: {report.summary()}"]
    for finding in report.findings:
        lines += _finding_text(report.subject, finding)
    lines += [f"equals {kernel.name} of {kernel.dialect}" for kernel in report.kernels]
    return "\n".join(lines) + "\n"


def _finding_text(subject: str, finding: Finding) -> list[str]:
    place = f"{subject}:{finding.line}: " if finding.line else ""
    lines = [f"{place}{finding.severity}: {', '.join(finding.paths)}: {finding.text}"]
    lines += [f"  {finding.rule}: {finding.reason}" if finding.reason else f"  {finding.rule}"]
    lines += [f"  source: {finding.source}"] if finding.source else []
    return lines + ([f"  contradicted: {finding.contradiction}"] if finding.contradiction else [])


def refuse_if_invalid(report: Report) -> None:
    """Raises CheckFailedError: the report has errors."""
    if not report.valid:
        raise CheckFailedError(
            f"{report.subject}: {report.summary()}; the report lists what to fix.", kind="configuration"
        )
