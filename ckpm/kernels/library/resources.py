"""The table of a library's kernels with their resources, against the arch's budget."""

from __future__ import annotations

from rich.table import Table

from ckpm.base.console import console
from ckpm.kernels.code.code_object import KernelResources
from ckpm.kernels.library.manifest import COUNTS, Manifest
from ckpm.matrix.dialects import compute_units
from ckpm.matrix.names import short_name


def show(manifest: Manifest) -> None:
    """Show a table for each arch with a row for each kernel, marked if it spills, uses scratch or cannot be launched.

    VGPR counts the unified file (AGPR included) of 512; LDS is bytes a workgroup, scratch bytes a lane, waves those
    that fit one SIMD.
    """
    for arch in manifest.archs:
        unit = compute_units()[arch]
        title = f"{manifest.upstream} on {arch}: {len(manifest.kernels)} kernels"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("kernel", overflow="fold", min_width=40)
        for column in (f"VGPR/{unit.vgprs}", "AGPR", "SGPR", "V spills", "S spills", "LDS", "scratch", "waves"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for name, row in sorted(manifest.kernels.items()):
            if figures := row.archs.get(arch):
                table.add_row(short_name(name), *_cells(figures))
        console(whole_rows=True).print(table)


def _cells(figures: KernelResources) -> list[str]:
    # an SGPR spills into a lane of a VGPR, a VGPR into memory: only the latter is a finding
    remarks = [
        word
        for word, true in (
            ("SPILLS", figures.vgpr_spills > 0),
            ("SCRATCH", figures.scratch_bytes > 0),
            ("TOO LARGE", figures.occupancy_waves == 0),
        )
        if true
    ]
    return [*(str(getattr(figures, field)) for field in COUNTS), " ".join(remarks)]
