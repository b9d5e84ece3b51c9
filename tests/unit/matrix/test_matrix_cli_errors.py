"""Commands of the matrix: one clear message with its own exit code for each bad input, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base.entry import exit_code
from tests.unit.matrix.matrix_samples import GROUP, NEWEST
from tests.unit.shared import Run

ROOT = Path(__file__).parents[3]
ARCHS = "Known: gfx90a, gfx942, gfx950, gfx1100, gfx1201."


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("lst",), 2, "there is no command 'lst'; did you mean 'list'? See ckpm --help."),
        (("frobnicate",), 2, "there is no command 'frobnicate'. See ckpm --help."),
        (("timing", "modle"), 2, "ckpm timing needs one of: model, show, tables, splits, score, board; did you mean '"),
        (("match", "--suite", "x"), 2, "unrecognized arguments: --suite x. See ckpm match --help."),
        (("list", "--archs", "gfx950"), 2, "unrecognized arguments: --archs gfx950; did you mean '--arch'? See ckpm "),
        (("list", "--tier", "smoke", "--tier=full"), 2, "--tier is given twice, as smoke and full"),
        (("list", "--arch", ","), 2, "--arch is empty; leave it out for gfx950"),
        (("list", "--mask", "x"), 2, "argument --mask: invalid choice: 'x'"),
        (("show",), 2, "the following arguments are required: NAME. See ckpm show --help."),
        (("show", GROUP, "--filter", "x"), 2, "unrecognized arguments: --filter x"),
        (("list", "--shard", "17/16"), 2, "--shard '17/16': write I/N with 1 <= I <= N, e.g. 3/16"),
        (
            ("list", "--upstream", "checkout"),
            2,
            "--upstream checkout: the matrix doesn't look at source trees. Name the tree's dialect with --dialect "
            "(ck-2025-06, ck-2025-11, ckpm-extended, ckpm-serving, prefill-v3, rocm-libraries-2026, "
            "rocm-libraries-2026-04, rocm-libraries-2026-09).",
        ),
        (("list", "--arch", "gfx951"), 2, f"unknown arch 'gfx951'; did you mean 'gfx950'? {ARCHS}"),
        (("list", "--profile", "aiter"), 2, "unknown profile 'aiter'; did you mean 'aiter_cpp', 'aiter_"),
        (
            ("list", "--arch", "gfx1100", "--tier", "smok"),
            2,
            "unknown tier 'smok'; did you mean 'smoke'? Known: full, nightly, ",
        ),
        (
            ("list", "--dialect", "ck"),
            2,
            "unknown dialect 'ck'; did you mean 'ck-2025-11' or 'ck-2025-06'? Known: ck-2025-06, ck-2025-11, ",
        ),
        (
            ("list", "--family", "bwd"),
            2,
            "unknown family 'bwd'; did you mean 'bwd_dq_dk_dv', 'bwd_dot_do_o' or 'bwd_convert_dq'? Known: fwd, ",
        ),
        (("list", "--arch", "gfx1100,gfx950", "--filter", "x"), 2, "no kernel is selected (archs gfx1100,gfx950, "),
        (("list", "--receipt", "800"), 2, "no kernel is selected (archs gfx950, family batch_prefill, receipt 800, "),
        (("list", "--where", "key.bn0 == 1"), 2, "--where 'key.bn0 == 1': unknown field 'key.bn0'; did you mean "),
        (("list", "--where", "open('x')"), 2, "--where \"open('x')\": 'open('x')' is not allowed; use key.FIELD, "),
        (
            ("show", "fmha_fwd_d1000"),
            3,
            "'fmha_fwd_d1000' is not a fwd name of this dialect: after 'fmha_fwd_d1000', expected '_', found",
        ),
        (("why", "zz"), 3, "'zz' is not a batch_prefill name of this dialect: at its start, expected 'fmha_batch_"),
        (("why", NEWEST), 3, f"'{NEWEST}' is a name of dialect rocm-libraries-2026, not of ck-2025-11. Use --dialect "),
        (
            ("show", GROUP.replace("_psskddv_", "_psddv_")),
            3,
            f"'{GROUP.replace('_psskddv_', '_psddv_')}' is not a kernel of ck-2025-11: group mode needs seqlen_q and "
            "seqlen_k padding: the length of the next sequence is unknown. See `ckpm why NAME`.",
        ),
        (
            ("list", "--output", "/dev/null/x"),
            10,
            "/dev/null/x: can't be written: Not a directory. A folder of this path is a file: name another place.",
        ),
        (("list", "--output", "/dev/full"), 10, "/dev/full: no space left on the disk. Free some, or name another"),
    ],
)
def test_bad_input_is_one_message_and_exit_code(run: Run, argv: tuple[str, ...], code: int, message: str) -> None:
    actual_code, out, err = run(*argv)
    assert (actual_code, out) == (code, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") <= 2
    assert all(line.startswith("more about this: docs/") for line in err.splitlines()[1:])


def test_wrong_choice_has_nearest(run: Run) -> None:
    assert "; did you mean 'generic'? See ckpm list --help." in run("list", "--mask", "genric")[2]


def test_filter_that_empties_selection_is_named(run: Run) -> None:
    code, _, err = run("list", "--filter", "*_bf16_*", "--where", "key.dtype == 'fp16'", "--filter", "*_group_*")
    assert code == 2
    assert "tier full, --filter '*_bf16_*', --filter '*_group_*', --where \"key.dtype == 'fp16'\"). " in err
    assert "--where \"key.dtype == 'fp16'\" removes the last 64, e.g. fmha_batch_prefill_d128_bf16_group_" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_message() -> None:
    command = [sys.executable, "-m", "ckpm", "list"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 10
    assert done.stderr == b"error: standard output: no space left on the disk. Free some, or send it elsewhere.\n"


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to go on"),
        (
            PermissionError(13, "Permission denied", "/a/file"),
            10,
            "/a/file: Permission denied. Fix that and try again.",
        ),
        (
            BlockingIOError(11, "Resource temporarily unavailable", "zig"),
            12,
            "zig can't be started: the system allows no further process (ulimit -u; pids.max of a container). Allow "
            "more, or take fewer at once with -j.",
        ),
    ],
)
def test_failure_of_machine_is_one_message(
    capsys: pytest.CaptureFixture[str], failure: BaseException, code: int, message: str
) -> None:
    def command() -> int:
        raise failure

    assert exit_code(command) == code
    assert capsys.readouterr().err == f"error: {message}\n"


def test_defect_of_ckpm_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code(lambda: 1 // 0)

    def mistake() -> int:
        raise RuntimeError("dictionary changed size during iteration")

    with pytest.raises(RuntimeError, match="changed size"):
        exit_code(mistake)
