"""The bar of a command's steps."""

from __future__ import annotations

from rich.progress import Progress

from ckpm.base.progress import _Elapsed


def test_elapsed_time_after_last_step_goes_on() -> None:
    now = 0.0
    bar = Progress(get_time=lambda: now)
    task = bar.add_task("units", total=1)
    now = 20.0
    bar.update(task, completed=1)
    now = 75.0

    assert _Elapsed().render(bar.tasks[0]).plain == "0:01:15"
