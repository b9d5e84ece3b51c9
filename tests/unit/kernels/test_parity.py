"""Parity finds each kind of difference and names it. The upstream here is invented: a tree whose generate.py prints
what a test wants, and instances that are our own text in other clothes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError, CodeObjectError, UpstreamError, UsageError
from ckpm.base.processes import ProcessPool
from ckpm.base.results import CaseResult, Results
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families import spellings
from ckpm.kernels.families.render import Unit, dispatch_text, instance_text, unit_text
from ckpm.kernels.parity import cases as parity
from ckpm.kernels.parity import command as parity_command
from ckpm.kernels.parity import machine_code
from ckpm.kernels.parity import names as parity_names
from ckpm.kernels.parity.machine_code import CodeComparison
from ckpm.kernels.upstream import codegen_runner
from ckpm.kernels.upstream.codegen_runner import Rendered
from ckpm.kernels.upstream.tree import FMHA, Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.keys import Key
from ckpm.matrix.published import stored_lists
from tests.unit.enumerated import keys_of

DIALECT = "ck-2025-11"
FEATURES = spellings.features(DIALECT)


@pytest.fixture
def keys() -> list[Key]:
    return keys_of(DIALECT, "batch_prefill", receipt=2)[::23]


def equal_texts(keys: list[Key]) -> Rendered:
    """The texts of an upstream that agrees with us."""
    return Rendered(
        {key.name: instance_text(key, FEATURES, "theirs::n") for key in keys},
        dispatch_text(keys, FEATURES).replace("ckpm", "theirs"),
    )


def lines(tree: Tree, keys: list[Key], upstream: Rendered) -> list[str]:
    findings = parity.compare_texts(tree, keys, list(upstream.instances), upstream)
    return [f"{finding.what}: {line}" for finding in findings for line in finding.lines]


def test_equal_texts_have_no_difference(tree: Tree, keys: list[Key]) -> None:
    assert len(keys) > 10
    assert lines(tree, keys, equal_texts(keys)) == []


def test_missing_and_unlisted_instance_are_named(tree: Tree, keys: list[Key]) -> None:
    upstream = equal_texts(keys)
    few = {name: text for name, text in upstream.instances.items() if name != keys[0].name}
    findings = parity.compare_texts(tree, keys, [key.name for key in keys], Rendered(few, upstream.dispatch))
    assert findings[0].lines == (f"{keys[0].name}: listed but not rendered",)
    findings = parity.compare_texts(tree, keys, list(few), upstream)
    assert findings[0].lines == (f"{keys[0].name}: rendered but not listed",)


GENERATE = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for word in ("--api", "--receipt", "--mask", "--list_blobs", "--output_dir"{targets}):
    parser.add_argument(word)
args = parser.parse_args()
here = json.loads((pathlib.Path(__file__).parent / "answers.json").read_text())
texts = here.get(getattr(args, "targets", None) or "all", {{}})
if args.list_blobs:
    folder = pathlib.Path(args.list_blobs).parent
    names = [name for name in texts if not name.endswith("_api")] + ["fmha_" + args.api + "_api"]
    pathlib.Path(args.list_blobs).write_text("".join(str(folder / (name + ".cpp")) + "\\n" for name in names))
else:
    for name, text in texts.items():
        (pathlib.Path(args.output_dir) / (name + ".cpp")).write_text(text)
"""


@pytest.fixture
def answers(tree: Tree) -> Callable[..., None]:
    """``answers(all=TEXTS)`` or ``answers(gfx950=TEXTS, gfx1100={})``: what the tree's generate.py writes."""

    def write(**texts: dict[str, str]) -> None:
        targets = "" if "all" in texts else ', "--targets"'
        (tree.root / FMHA / "generate.py").write_text(GENERATE.format(targets=targets))
        (tree.root / FMHA / "answers.json").write_text(json.dumps(texts))

    return write


def texts_of(keys: list[Key]) -> dict[str, str]:
    upstream = equal_texts(keys)
    return {**upstream.instances, "fmha_batch_prefill_api": upstream.dispatch}


def cases(tree: Tree, *archs: str) -> dict[str, CaseResult]:
    live_cases = parity.live_cases(tree, archs, [200], ["simplified"])
    return {case.classname.split(".")[2]: case for case in live_cases}


def test_archs_without_kernels(tree: Tree, answers: Callable[..., None]) -> None:
    texts = texts_of(keys_of(DIALECT, "batch_prefill", receipt=200))
    api = {"fmha_batch_prefill_api": ""}
    answers(gfx90a=texts, gfx950=texts, gfx1100=api, gfx1201=texts)
    case_by_arch = cases(tree, "gfx950", "gfx1100", "gfx1201")
    assert {case.outcome for case in case_by_arch.values()} == {"passed"}
    assert "no kernel on either side" in case_by_arch["gfx1100"].text
    assert parity_names.ARCH_IGNORED in case_by_arch["gfx1201"].text
    answers(gfx90a=texts, gfx950=texts, gfx1100=dict(list(texts.items())[3:]))
    case = cases(tree, "gfx1100")["gfx1100"]
    assert case.outcome == "failed"
    assert "125 missing" in case.text


def test_variable_of_the_codegen_changes_no_list(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are kept by the content of the codegen."""
    (tree.root / FMHA / "generate.py").write_text(
        "import os, pathlib\n"
        "pathlib.Path('blobs.txt').write_text(os.environ.get('CK_TILE_FMHA_FWD_CUSTOM_FACTORY', 'kernel'))\n"
    )
    monkeypatch.setenv("CK_TILE_FMHA_FWD_CUSTOM_FACTORY", "custom")
    with ProcessPool(1) as pool:
        live = codegen_runner.Live(tree, pool, "fwd", tmp_path / "cache")
        assert live.names("gfx950", 4, "simplified").result() == ["kernel"]


def test_texts_of_each_arch_are_compared(tree: Tree, answers: Callable[..., None]) -> None:
    """A dispatch that differs on one arch alone, with the same names, is that arch's difference."""
    texts = texts_of(keys_of(DIALECT, "batch_prefill", receipt=200))
    changed = {**texts, "fmha_batch_prefill_api": texts["fmha_batch_prefill_api"].replace("t.hdim_q <= 128", "true")}
    assert changed != texts
    answers(gfx942=texts, gfx950=changed)
    outcomes = {arch: case.outcome for arch, case in cases(tree, "gfx942", "gfx950").items()}
    assert outcomes == {"gfx942": "passed", "gfx950": "failed"}
    answers(all=changed)
    assert {case.outcome for case in cases(tree, "gfx942", "gfx950").values()} == {"failed"}


def test_failing_generator_is_error_with_its_words(tree: Tree, tmp_path: Path) -> None:
    """The command in the message can be run again: it names nothing that is gone by then."""
    (tree.root / FMHA / "generate.py").write_text("raise SystemExit('no such luck')")
    with pytest.raises(UpstreamError, match=r"generate.py ended with 1. To see it again") as caught:
        codegen_runner.list_names(tree, "gfx950", "batch_prefill", 0, "simplified")
    first, _, output = str(caught.value).partition("\nIt said:\n")
    command = shlex.split(first.partition("in an empty folder: ")[2])
    assert command[-2:] == ["--list_blobs", "blobs.txt"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (again.returncode, again.stderr.strip(), output) == (1, "no such luck", "no such luck")
    case = cases(tree, "gfx950")["gfx950"]
    assert case.outcome == "error"
    assert "no such luck" in case.text


LISTS = """import sys
from pathlib import Path
api, arch = (sys.argv[sys.argv.index(word) + 1] for word in ("--api", "--targets"))
if arch == "gfx1100":
    raise Exception("Unsupported device target gfx1100")
names = {NAMES!r}
Path("blobs.txt").write_text("".join(f"build/{name}.cpp\\n" for name in [*names, "fmha_fwd_splitkv_api"]))
"""


def test_lists_are_kept_while_codegen_is_same(tree: Tree, tmp_path: Path) -> None:
    """A second run asks the codegen nothing; a damaged entry or a changed codegen is listed anew."""
    script, runs, cache = tree.root / FMHA / "generate.py", tmp_path / "runs", tmp_path / "cache"
    keys = keys_of(DIALECT, "fwd_appendkv")
    names = [key.name for key in keys]

    def outcome(listed: list[str]) -> tuple[str, int]:
        text = LISTS.replace("{NAMES!r}", repr(listed)).replace("splitkv", "appendkv")
        script.write_text(f'# "--targets"\n{text}open({str(runs)!r}, "a").write("run\\n")\n')
        (case,) = parity_names.names_cases(tree, ["fwd_appendkv"], ["gfx950"], [0], ["simplified"], cache)
        return case.outcome, len(runs.read_text().splitlines())

    assert [outcome(names), outcome(names)] == [("passed", 1), ("passed", 1)]
    (entry,) = (cache / "parity").glob("*.entry")
    entry.write_text(entry.read_text().replace(names[0], names[1]))
    assert [outcome(names), outcome(names)] == [("passed", 2), ("passed", 2)]
    assert outcome(names[1:]) == ("failed", 3)


def test_stored_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = min((entry for entry in stored_lists() if entry.sha256_emission_order), key=lambda entry: entry.count)
    case = parity_names.stored_case(entry)
    assert case.outcome == "passed"
    wrong = dataclasses.replace(entry, sha256_emission_order="0" * 64)
    assert "order is not upstream's" in parity_names.stored_case(wrong).text
    all_keys = enumerate_names
    monkeypatch.setattr(parity_names, "enumerate_names", lambda *args, **options: all_keys(*args, **options)[1:])
    assert parity_names.stored_case(entry).text.startswith(f"names differ:\n{len(entry.families)} missing")


@pytest.mark.parametrize("name", ["ck-2025-06", DIALECT, "rocm-libraries-2026"])
def test_sample_covers_every_axis_value(name: str) -> None:
    family = dialect(name).family("batch_prefill")
    keys = [key for mask in family.masks for key in enumerate_keys(family, arch="gfx950", mask_impl=mask)[::5]]
    chosen = machine_code.sample(keys)
    assert len(chosen) <= 8
    every = frozenset().union(*map(machine_code.axis_values, keys))
    assert frozenset().union(*map(machine_code.axis_values, chosen)) == every
    assert chosen == machine_code.sample(list(keys))
    assert [key.tile.bm0 for key in chosen] == sorted(key.tile.bm0 for key in chosen)


def functions(image: bytes) -> dict[str, bytes]:
    """The stub compiler's object is the source: a kernel's "code" is its text, whichever its place in a unit."""
    if b"DAMAGED" in image:
        raise CodeObjectError("truncated")
    texts = re.sub(rb"ckpm::k\d+", b"", image).split(b"namespace  {")[1:]
    texts_by_match = {re.search(rb'note_selected\("(.*?)"\)', text): text for text in texts}
    return {match[1].decode(): text[: text.index(b"kargs));")] for match, text in texts_by_match.items() if match}


@pytest.fixture
def compared(
    tree: Tree, stub_toolchain: Callable[..., Toolchain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[CodeComparison]]:
    """``compared(pairs, breaks=WORD)``: both texts of the pairs through a compiler that refuses the word."""
    monkeypatch.setattr(codeobject, "functions", functions)

    def run(pairs: list[tuple[Key, str]], name: str = DIALECT, breaks: str = "") -> list[CodeComparison]:
        old, cache = dataclasses.replace(tree, dialect=name), tmp_path / "cache" / breaks.replace(" ", "")
        with ProcessPool(2) as pool:
            return machine_code.compare(pairs, old, stub_toolchain(breaks), "gfx950", cache=cache, pool=pool)()

    return run


def alone(key: Key, name: str = DIALECT) -> str:
    """Our text of one kernel, which stands for upstream's."""
    return unit_text(Unit("theirs", (key,)), spellings.features(name))


def test_known_defect_is_strict(compared: Callable[..., list[CodeComparison]]) -> None:
    """Kernels that can't compile are sampled once more, must fail in both texts, and are reported when they compile."""
    name = "ck-2025-06"
    keys = keys_of(name, "batch_prefill")
    chosen = machine_code.choose(keys, name, "gfx950")
    assert [key.vlayout for key in chosen] == ["row"] * (len(chosen) - 1) + ["col"]
    assert "col" not in {key.vlayout for key in machine_code.choose(keys[:1], name, "gfx950")}
    column = chosen[-1]

    def result(text: str, breaks: str) -> CodeComparison:
        return compared([(column, text)], name, breaks)[0]

    assert result(alone(column, name), "template") == CodeComparison(
        column.name, 0, "", defect="column-major-v-does-not-compile"
    )
    assert "upstream's text compiles, but the known defect" in result("int x;", "template").difference
    assert result("BROKEN", "BROKEN").difference.startswith("ours compiles, but")


def test_machine_code_is_compared_byte_for_byte(
    keys: list[Key], compared: Callable[..., list[CodeComparison]], tmp_path: Path
) -> None:
    """Ours are compiled in one unit, upstream's one by one; a difference in one kernel is that kernel's alone."""
    pairs = [(key, alone(key)) for key in keys[:4]]
    pairs[1] = (keys[1], pairs[1][1].replace("kBlockPerCu", "kBlockPerCU"))
    pairs[2] = (keys[2], alone(keys[5]))
    pairs[3] = (keys[3], "int x;")
    comparisons = compared(pairs)
    assert comparisons[0] == CodeComparison(keys[0].name, len(functions(pairs[0][1].encode())[keys[0].name]), "")
    assert comparisons[0].code_bytes > 1000
    assert comparisons[1].difference.startswith("upstream's code has ")
    assert "they differ from byte 0x" in comparisons[1].difference
    assert comparisons[2].difference == f"upstream's text makes a function that ours doesn't: {keys[5].name}"
    assert comparisons[3].error == "upstream's text has no machine code on this arch"
    log = (tmp_path / "stub.log").read_text().splitlines()
    assert len(log) == 7  # four of upstream's, ours in one unit, and alone the two that differ
    assert compared(pairs) == comparisons
    assert (tmp_path / "stub.log").read_text().splitlines() == log  # all from the cache


def test_kernel_that_neighbours_change_is_named_and_equal_alone(
    keys: list[Key], compared: Callable[..., list[CodeComparison]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_neighbours(image: bytes) -> dict[str, bytes]:
        bodies = functions(image)
        if len(bodies) > 1:
            bodies[keys[1].name] += b"!"
        return bodies

    monkeypatch.setattr(codeobject, "functions", with_neighbours)
    pairs = [(key, alone(key)) for key in keys[:3]]
    first, second, _ = compared(pairs)
    assert (first.difference, first.beside, second.difference) == ("", "", "")
    assert re.fullmatch(r"upstream's code has (\d+) bytes, ours (\d+); they differ from byte 0x\w+ on", second.beside)
    pairs[1] = (keys[1], pairs[1][1].replace("kBlockPerCu", "kBlockPerCU"))
    other = compared(pairs)[1]
    assert (bool(other.difference), other.beside) == (True, "")  # alone as well


def test_text_that_does_not_compile_is_error(keys: list[Key], compared: Callable[..., list[CodeComparison]]) -> None:
    comparisons = compared([(keys[0], alone(keys[0])), (keys[1], "BROKEN")], breaks="BROKEN")
    assert (comparisons[0].error, comparisons[0].difference) == ("", "")
    assert "upstream's text does not compile: " in comparisons[1].error
    comparisons = compared([(keys[0], "int x;"), (keys[1], "int y;")], breaks=keys[1].name)
    assert ["our text does not compile" in comparison.error for comparison in comparisons] == [True, True]


def test_kernels_without_device_code_on_arch_are_no_sample() -> None:
    family = dialect("rocm-libraries-2026").family("batch_prefill")
    keys = enumerate_keys(family, arch="gfx90a", receipt=200)[::7]
    loads = {
        arch: {key.load for key in machine_code.choose(keys, "rocm-libraries-2026", arch)} for arch in family.archs
    }
    assert loads == {"gfx90a": {"bload"}, "gfx942": {"bload", "gload"}, "gfx950": {"bload", "gload"}}


def test_every_arch_with_kernels_has_case_of_machine_code(
    tree: Tree,
    answers: Callable[..., None],
    stub_toolchain: Callable[..., Toolchain],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(codeobject, "functions", functions)
    keys = keys_of(DIALECT, "batch_prefill")
    answers(all={**{key.name: alone(key) for key in keys}, "fmha_batch_prefill_api": ""})
    archs = ("gfx90a", "gfx950", "gfx1100")
    request = parity.ParityRequest(
        upstreams=(),
        families=("batch_prefill",),
        archs=archs,
        receipts=(),
        masks=("simplified",),
        cache=tmp_path / "cache",
        job_count=2,
    )
    code_cases = list(parity.machine_code_cases([tree], request, stub_toolchain()))
    assert [(case.name, case.outcome) for case in code_cases] == [
        (f"{arch} batch_prefill machine code", "passed") for arch in ("gfx90a", "gfx950")
    ]
    assert caplog.messages == ["machine code of samples, 2 compilers at once (stub 1)"]
    answers(all={**{key.name: f"{alone(key)}//" for key in keys}, "fmha_batch_prefill_api": ""})
    monkeypatch.setattr(codeobject, "functions", lambda image: {"f": str(len(image)).encode()})
    request = dataclasses.replace(request, cache=tmp_path / "other")
    assert {case.outcome for case in parity.machine_code_cases([tree], request, stub_toolchain())} == {"failed"}


def test_command_writes_results_before_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = CaseResult(suite="s", classname="c", name="n", outcome="failed", message="odd", text="text")
    monkeypatch.setattr(parity_command, "compare_upstreams", lambda request: Results((bad,)))
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path))
    monkeypatch.delenv("CK_ROOT", raising=False)
    output = tmp_path / "results.json"
    parser = argparse.ArgumentParser()
    parity_command.add_options(parser)
    args = parser.parse_args(["--no-machine-code", "--arch", "gfx950,gfx942", "--output", str(output)])
    with pytest.raises(CheckFailedError, match=r"1 cases differ or failed.*\n  c: n: odd"):
        parity_command.run_command(args)
    assert Results.read(output).cases == (bad,)
    request = parity_command.request_from(args)
    assert request.archs == ("gfx950", "gfx942")
    assert request.upstreams == ("aiter", "flash-attn")
    monkeypatch.setenv("CK_ROOT", str(tmp_path))
    assert parity_command.request_from(args).upstreams == ("aiter", "flash-attn", "checkout")
    args.upstream = [" ,"]
    with pytest.raises(UsageError, match="--upstream is empty; leave it out for aiter, flash-attn"):
        parity_command.request_from(args)
    args.upstream = ["aiter", "ckpm"]
    with pytest.raises(UsageError, match=r"ckpm: has no codegen to compare with\. Known: aiter, flash-attn"):
        parity_command.request_from(args)
    assert "s  1 failed" in capsys.readouterr().out


def test_nothing_to_compare_is_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity_command, "compare_upstreams", lambda request: Results(()))
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path))
    parser = argparse.ArgumentParser()
    parity_command.add_options(parser)
    with pytest.raises(UsageError, match="nothing to compare for this --upstream, --family and --arch"):
        parity_command.run_command(parser.parse_args(["--no-machine-code"]))
