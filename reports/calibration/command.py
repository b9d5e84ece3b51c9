"""``python -m reports archive``: results, versions and logs of a run on a GPU as one file to send or keep."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.outputs import forget_output, refuse_inputs, write_output
from ckpm.base.records import as_text
from ckpm.reports.calibration.archive import gathered, packed, root_of
from ckpm.reports.calibration.contents import contents
from ckpm.reports.calibration.figures import published_csv, timed, timed_csv
from ckpm.reports.calibration.versions import versions
from ckpm.reports.page.inputs import gather


def add_options(archive: argparse.ArgumentParser) -> None:
    archive.add_argument("--input", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    archive.add_argument(
        "--log", type=Path, action="append", default=[], metavar="FILE", help="a log outside of --input; repeat it"
    )
    archive.add_argument("--output", type=Path, required=True, metavar="FILE", help="ends with .tar.gz")
    archive.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Raises what :func:`gather` raises, UsageError, OverwriteError, DiskFullError, OutputError."""
    root = root_of(args.output)
    files = gathered(args.input, args.log)
    refuse_inputs(args.output, files.values())
    forget_output(args.output)
    inputs = gather(args.input)
    times = timed(inputs)
    published, beside = published_csv(inputs)
    listed = contents(inputs, times, beside)
    written = {
        "contents.json": as_text(dataclasses.asdict(listed)),
        "versions.json": as_text(dataclasses.asdict(versions())),
        "times.csv": timed_csv(times).encode(),
        "published.csv": published.encode(),
    }
    data = {**{name: file.read_bytes() for name, file in files.items()}, **written}
    write_output(args.output, packed(root, data))
    show(f"{listed.headline}\n{args.output}: {len(data)} files")
    for line in listed.lacking:
        show(f"  lacking for a calibration: {line}")
