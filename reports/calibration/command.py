"""``ckpm report --archive FILE``: results, versions and logs of a run on a GPU as one file to send or keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.outputs import forget_output, refuse_inputs, write_output
from ckpm.base.records import as_text
from ckpm.reports.calibration.archive import gathered, packed, root_of
from ckpm.reports.calibration.contents import contents
from ckpm.reports.calibration.figures import published_csv, timed, timed_csv
from ckpm.reports.calibration.versions import versions
from ckpm.reports.page.inputs import gather


def run(folder: Path, logs: Sequence[Path], output: Path) -> None:
    """Write the archive. Raises what :func:`gather` raises, UsageError, OverwriteError, DiskFullError, OutputError."""
    root = root_of(output)
    files = gathered(folder, logs)
    refuse_inputs(output, files.values())
    forget_output(output)
    inputs = gather(folder)
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
    write_output(output, packed(root, data))
    show(f"{listed.headline}\n{output}: {len(data)} files")
    for line in listed.lacking:
        show(f"  lacking for a calibration: {line}")
