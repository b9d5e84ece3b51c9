"""Upstream trees: the version of a checkout, a fetch that is once and whole, and every failure of a fetch."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.base.errors import OutputError, ServiceError, SetupError, TrustError, UnknownWordError, UsageError
from ckpm.kernels.upstream import package_index
from ckpm.kernels.upstream import trees as upstream
from ckpm.kernels.upstream.tree import FMHA
from ckpm.kernels.upstream.trees import checkout, damage, digest, include_closure, locate, package_folder
from ckpm.matrix.dialects import PackagedUpstream, dialect, features, upstreams
from ckpm.matrix.enumeration import enumerate_names

CODEGEN = {
    "ck-2025-06": "do_fp8_static_quant get_mask_map def list_blobs(file_path",
    "ck-2025-11": "do_fp8_static_quant get_mask_map def list_blobs(targets",
    "rocm-libraries-2026-04": "SUPPORTED_PAGE_SIZE = 1 targets",
    "rocm-libraries-2026": "SUPPORTED_PAGE_SIZE = 1 bload gload targets",
    "prefill-v3": "SUPPORTED_PAGE_SIZE = 1 qr_async_trload_v3 targets",
}

KERNELS = Path(__file__).parents[3] / "kernels"
TRAITS = "".join(f"struct {name};\n" for name in dialect("rocm-libraries-2026").parameters)


def make_tree(root: Path, codegen: str, header: str = "", mask: str = TRAITS) -> Path:
    """Make the files by which a tree is recognised; ``codegen`` is the text of its batch-prefill codegen."""
    (root / FMHA / "codegen/ops").mkdir(parents=True)
    (root / "include/ck_tile/ops").mkdir(parents=True)
    (root / FMHA / "generate.py").write_text("# generator\n")
    (root / FMHA / "codegen/ops/fmha_batch_prefill.py").write_text(codegen)
    if "targets" in codegen:
        (root / FMHA / "codegen/utils.py").write_text("")
    (root / FMHA / "fmha_fwd.hpp").write_text(f'#include "ck_tile/core.hpp"\n#include "mask.hpp"\n{header}\n')
    (root / FMHA / "mask.hpp").write_text(mask)
    (root / "include/ck_tile/core.hpp").write_text('#if 0\n#  include "ck_tile/deep.hpp"\n#endif\n')
    (root / "include/ck_tile/deep.hpp").write_text("// deep\n")
    (root / "include/ck_tile/unused.hpp").write_text("// no file includes this\n")
    return root


@pytest.mark.parametrize("dialect", CODEGEN)
@pytest.mark.parametrize("below", ["", "projects/composablekernel"])
def test_checkout_version_is_detected(tmp_path: Path, dialect: str, below: str) -> None:
    make_tree(tmp_path / below, CODEGEN[dialect])
    tree = checkout(tmp_path)
    assert tree.dialect == dialect
    assert tree.root == (tmp_path / below).resolve()


MARKED = {name: row for name, row in features().items() if row.file}


def write_features(root: Path, names: Collection[str]) -> Path:
    """A checkout of May 2026 whose files contain the marks of these features, and of no other feature."""
    make_tree(root, CODEGEN["rocm-libraries-2026"])
    for file in sorted({row.file for row in MARKED.values()}):
        rows = [(name in names, row) for name, row in features().items() if row.file == file]
        marks = [mark for present, row in rows for mark in (row.has if present else row.lacks)]
        path = root / FMHA / file
        text = path.read_text() if path.exists() else ""
        path.write_text("\n".join([text, *marks]))
    return root


@pytest.mark.parametrize("file", ["fmha_batch_prefill.py", "fmha_bwd.py", "fmha_fwd.py", "fmha_fwd.hpp"])
def test_checkout_file_of_september_brings_its_features(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    caplog.set_level("INFO")
    names = [name for name, row in MARKED.items() if row.file.endswith(file)]
    tree = locate("checkout", cache=tmp_path, ck_root=write_features(tmp_path / "ck", names))
    assert tree.dialect == "+".join(("rocm-libraries-2026", *names))
    assert any(f"no stored dialect has together: {', '.join(names)}" in message for message in caplog.messages)


def test_checkout_all_merged_features_is_september(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    root = write_features(tmp_path / "ck", dialect("rocm-libraries-2026-09").features)
    assert locate("checkout", cache=tmp_path, ck_root=root).dialect == "rocm-libraries-2026-09"
    assert not any("no stored dialect" in message for message in caplog.messages)


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from(sorted(MARKED))))
def test_features_of_any_combination_are_found_and_named(names: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert set(checkout(write_features(Path(folder), names)).dialect.split("+")[1:]) in (
            names,
            set() if names == set(dialect("rocm-libraries-2026-09").features) & set(MARKED) else names,
        )


def names_of(dialect_name: str) -> list[str]:
    return list(enumerate_names(dialect(dialect_name).family("batch_prefill"), arch="gfx950"))


def list_names_instead(root: Path, names: list[str]) -> None:
    """Make a codegen that lists these names."""
    listed = "\n".join(f"{name}.cpp" for name in names)
    (root / FMHA / "generate.py").write_text(f"open('blobs.txt', 'w').write({listed!r})\n")


def test_checkout_is_taken_for_dialect_of_its_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    root = make_tree(tmp_path / "ck", CODEGEN["rocm-libraries-2026"])
    first, *names = names_of("ck-2025-11")
    list_names_instead(root, [*names, "fmha_batch_prefill_of_2027"])
    assert locate("checkout", cache=tmp_path, ck_root=root).dialect == "ck-2025-11"
    (note,) = caplog.messages
    assert "taken for dialect ck-2025-11, although it reads as rocm-libraries-2026" in note
    assert f"1 missing (fmha_batch_prefill_of_2027); 1 extra ({first})" in note


@pytest.mark.parametrize("lines", [["fmha_batch_prefill_of_2027"], None])
def test_words_decide_where_names_fit_no_dialect(tmp_path: Path, lines: list[str] | None) -> None:
    root = make_tree(tmp_path / "ck", CODEGEN["rocm-libraries-2026"])
    if lines:
        list_names_instead(root, lines)
    assert checkout(root, tmp_path / "cache").dialect == "rocm-libraries-2026"


def test_tree_with_some_names_more_keeps_its_dialect(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "ck", CODEGEN["rocm-libraries-2026"])
    names = names_of("rocm-libraries-2026")
    sinks = [name.replace("_nsink_", "_sink_") for name in names if "_nmask_" in name]
    list_names_instead(root, [*(name for name in names if "fp8" not in name or "_sink_" not in name), *sinks])
    assert checkout(root, tmp_path / "cache").dialect == "rocm-libraries-2026"


def test_checkout_with_pipe_is_refused(tmp_path: Path) -> None:
    make_tree(tmp_path, CODEGEN["rocm-libraries-2026"])
    os.mkfifo(tmp_path / FMHA / "instances.json")
    with pytest.raises(SetupError, match=r"instances\.json: a pipe or a device is in the CK tree\. Remove it\."):
        checkout(tmp_path)


SELECTOR = (
    "inline int fmha_batch_prefill_select_kv_load_mode(\n    int page_size,  // tokens\n    const void* {})\n{{}}\n"
)


@pytest.mark.parametrize("location", ["example header", "one that it includes"])
def test_load_selector_s_form_is_reported_from_header(tmp_path: Path, location: str) -> None:
    def taken(name: str, parameter: str) -> bool:
        text = SELECTOR.format(parameter) + "void other(const void* k_base_ptr);\n"
        example, included = (text, "") if location == "example header" else ("", text)
        root = make_tree(tmp_path / name, CODEGEN["rocm-libraries-2026"], example, TRAITS + included)
        return checkout(root).selector_takes_base

    assert (taken("older", "pool"), taken("newer", "k_base_ptr")) == (False, True)


@pytest.mark.parametrize("codegen", ["", "something of 2030", "SUPPORTED_PAGE_SIZE = 1 use_64bit_load targets"])
def test_tree_of_another_version_is_refused(tmp_path: Path, codegen: str) -> None:
    with pytest.raises(
        SetupError,
        match=r"fits no dialect of: ck-2025-06, ck-2025-11, prefill-v3, rocm-libraries-2026, .*-2026-04\. A new",
    ):
        checkout(make_tree(tmp_path, codegen))


def test_names_decide_where_words_fit_no_dialect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    root = make_tree(tmp_path / "ck", "something of 2030")
    names = names_of("rocm-libraries-2026-04")
    wide = [name.replace("_ps16_", "_ps16_64bit_") for name in names if "_ps16_" in name]
    list_names_instead(root, [*names, *wide])
    assert locate("checkout", cache=tmp_path, ck_root=root).dialect == "rocm-libraries-2026-04"
    (note,) = caplog.messages
    assert "although it reads as none alone" in note
    assert f"closest to rocm-libraries-2026-04's ({len(wide)} missing ({min(wide)}, ..))" in note


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["fmha_batch_prefill_of_2027"], r"None of the names that it lists is in one of them\. A new version"),
        (None, r"Its names can't be compared: .*wrote no list of kernels"),
    ],
)
def test_tree_of_no_dialect_s_words_or_names_is_refused(tmp_path: Path, lines: list[str] | None, reason: str) -> None:
    root = make_tree(tmp_path / "ck", "something of 2030")
    if lines:
        list_names_instead(root, lines)
    with pytest.raises(SetupError, match=rf"fits no dialect of: ck-2025-06, .*\. {reason}"):
        checkout(root, tmp_path / "cache")


@pytest.mark.parametrize("cache", ["", "cache"])
def test_tree_without_batch_prefill_is_too_old(tmp_path: Path, cache: str) -> None:
    root = make_tree(tmp_path / "ck", CODEGEN["ck-2025-06"])
    (root / FMHA / "codegen/ops/fmha_batch_prefill.py").unlink()
    with pytest.raises(SetupError) as caught:
        checkout(root, tmp_path / cache if cache else None)
    assert str(caught.value) == (
        f"{root}: this tree has no batch-prefill codegen: {FMHA}/codegen/ops/fmha_batch_prefill.py is missing. "
        "Check out CK of June 2025 or later."
    )


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("")])
def test_folder_without_ck_tree_is_refused(tmp_path: Path, make: object) -> None:
    make(tmp_path / "root")  # type: ignore[operator]
    with pytest.raises(SetupError, match=r"no Composable Kernel tree\. Expected example/ck_tile/01_fmha/generate\.py"):
        checkout(tmp_path / "root")


def test_checkout_with_unknown_values_is_newer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    codegen = CODEGEN["rocm-libraries-2026"]
    header = """
        // enum class BlockAttentionBiasEnum { NOT_CODE };
        enum class BlockAttentionKVCacheMemoryLayoutEnum
        {
            VECTORIZED_LAYOUT = 0, /* BlockAttention, LINEAR */
            LINEAR_LAYOUT     = 1,%s
        };
        enum class Other : int { ANYTHING };
    """
    assert checkout(make_tree(tmp_path / "known", codegen, header % "")).newer == ()
    newer = make_tree(tmp_path / "newer", codegen, header % "\n LINEAR_HEADS_FIRST_LAYOUT = 2,")
    tree = locate("checkout", cache=tmp_path, ck_root=newer)
    assert tree.dialect == "rocm-libraries-2026"
    value = "BlockAttentionKVCacheMemoryLayoutEnum::LINEAR_HEADS_FIRST_LAYOUT (example/ck_tile/01_fmha/fmha_fwd.hpp:5)"
    assert tree.newer == (value,)
    (note,) = caplog.messages
    assert note.startswith(
        f"note: {tree.root} is newer than dialect rocm-libraries-2026, which has no kernels for {value}"
    )


KNOWN = dialect("rocm-libraries-2026").parameters["fmha_fwd_batch_prefill_traits_"]
LOAD = "ck_tile::LoadModeEnum kKVLoadMode_ =\n              ck_tile::LoadModeEnum::BUFFER_LOAD"  # in two lines


def traits(*parameters: str) -> str:
    """The struct of batch prefill's traits, between two other declarations."""
    return f"""
template <typename Traits_, typename Arch = void>
float fmha_fwd_(const ck_tile::stream_config&, fmha_fwd_args);
template <{", ".join(parameters)}>
struct fmha_fwd_batch_prefill_traits_ : public fmha_fwd_traits_<HDim_, kOther_>
{{ static constexpr auto kLoad = kKVLoadMode_; }};
"""


def newest(root: Path, *parameters: str, codegen: str = "") -> Path:
    return make_tree(root, CODEGEN["rocm-libraries-2026"] + codegen, traits(*parameters))


def test_additional_parameter_is_newer_and_keeps_its_default(tmp_path: Path) -> None:
    parameters = [*(f"bool {name}" for name in KNOWN[:-1]), LOAD]
    assert checkout(newest(tmp_path / "known", *parameters)).newer == ()
    assert checkout(newest(tmp_path / "renamed", *(f"int P{n}" for n in range(len(KNOWN))))).newer == ()
    tree = checkout(newest(tmp_path / "newer", *parameters, "ck_tile::index_t kFuture_ = -1"))
    assert tree.dialect == "rocm-libraries-2026"
    location = "(example/ck_tile/01_fmha/fmha_fwd.hpp:8)"
    assert tree.newer == (f"another kFuture_ of fmha_fwd_batch_prefill_traits_ than its default {location}",)


@pytest.mark.parametrize(("at", "default"), [(24, " = -1"), (28, "")])
def test_parameter_that_cannot_be_left_out_is_another_version(tmp_path: Path, at: int, default: str) -> None:
    parameters = [f"bool {name}" for name in KNOWN]
    parameters.insert(at, f"ck_tile::index_t kFuture_{default}")
    message = r"fmha_fwd\.hpp:7: fmha_fwd_batch_prefill_traits_ has a parameter kFuture_ that dialect"
    with pytest.raises(SetupError, match=message):
        checkout(newest(tmp_path, *parameters))


def test_codegen_without_its_headers_is_refused(tmp_path: Path) -> None:
    text = "// struct fmha_fwd_batch_prefill_traits_\nstruct fmha_fwd_batch_prefill_traits_of_another;\n"
    root = make_tree(tmp_path, CODEGEN["rocm-libraries-2026"], mask=text)
    with pytest.raises(SetupError, match=r"kernels include defines fmha_fwd_batch_prefill_traits_, "):
        checkout(root)
    checkout(make_tree(tmp_path / "older", CODEGEN["ck-2025-11"], mask=text))


def test_codegen_for_other_archs_is_newer(tmp_path: Path) -> None:
    codegen = (
        '\nif target.startswith("gfx11"):  # not gfx12\n    pass\nARCHS = ["gfx90a", "gfx950", \'gfx1151\', "gfx11"]\n'
    )
    tree = checkout(newest(tmp_path, *(f"bool {name}" for name in KNOWN), codegen=codegen))
    file = "example/ck_tile/01_fmha/codegen/ops/fmha_batch_prefill.py"
    assert tree.newer == (f"gfx11 ({file}:2)", f"gfx1151 ({file}:4)")
    assert f"has no kernels for gfx11 ({file}:2), gfx1151" in tree.words_of_newer()


def test_checkout_needs_place(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"set CK_ROOT or pass --ck-root DIR"):
        locate("checkout", cache=tmp_path)


def test_unknown_upstream_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownWordError, match=r"unknown upstream 'aitr'; did you mean 'aiter'\?"):
        locate("aitr", cache=tmp_path)


def test_closure_has_every_header_that_built_sources_include(tmp_path: Path) -> None:
    root = make_tree(tmp_path, CODEGEN["ck-2025-11"])
    sources = [
        file for name in ("templates", "include", "include_fwd", "include_bwd") for file in (KERNELS / name).iterdir()
    ]
    included = {name for file in sources for name in re.findall(r'#include "(ck_tile/.*|fmha_.*)"', file.read_text())}
    assert {"fmha_fwd.hpp", "fmha_bwd.hpp", "fmha_fwd_v3.hpp", "ck_tile/host/device_prop.hpp"} <= included
    headers = {root / ("include" if name.startswith("ck_tile/") else FMHA) / name for name in included}
    for header in headers:
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("// includes none of the others\n")
    assert headers <= include_closure(root)


def test_closure_has_headers_that_hide_those_of_the_toolchain(tmp_path: Path) -> None:
    """The folders of a tree are searched before the toolchain's."""
    root = make_tree(
        tmp_path, CODEGEN["ck-2025-11"], "#include <hip/hip_runtime.h>\n#include </etc/hosts>\n#include <vector>"
    )
    before = include_closure(root)
    for name in ("hip/hip_runtime.h", "vector"):
        (root / "include" / name).parent.mkdir(exist_ok=True)
        (root / "include" / name).write_text("// another\n")
    assert {file.name for file in include_closure(root) - before} == {"hip_runtime.h", "vector"}


def test_digest_follows_included_files_and_codegen_alone(tmp_path: Path) -> None:
    root = make_tree(tmp_path, CODEGEN["ck-2025-11"])
    assert {file.name for file in include_closure(root)} == {"fmha_fwd.hpp", "mask.hpp", "core.hpp", "deep.hpp"}
    before = digest(root, include_closure(root))
    (root / "include/ck_tile/unused.hpp").write_text("// edited\n")
    assert digest(root, include_closure(root)) == before
    (root / "include/ck_tile/deep.hpp").write_text("// edited\n")
    edited = digest(root, include_closure(root))
    assert edited != before
    (root / FMHA / "codegen/ops/fmha_batch_prefill.py").write_text("# edited")
    assert digest(root, include_closure(root)) != edited


def archive(kind: str, tree: str, files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    if kind == "wheel":
        with zipfile.ZipFile(buffer, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(f"{tree}/{name}", text)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as sdist:
            for name, text in files.items():
                member = tarfile.TarInfo(f"{tree}/{name}")
                member.size = len(text)
                sdist.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture(params=["wheel", "sdist"])
def served(request: pytest.FixtureRequest) -> tuple[PackagedUpstream, bytes]:
    """An upstream 'aiter' in memory: its row of the table, its file."""
    files = {f"{FMHA}/generate.py": "#", "include/ck_tile/core.hpp": "//", "LICENSE": "MIT", "profiler/big.cpp": "//"}
    files["include/../../outside.hpp"] = "//"
    row = upstreams()["aiter"]
    data = archive(request.param, row.tree, files)
    name = "p.whl" if request.param == "wheel" else "p.tar.gz"
    return msgspec.structs.replace(row, file=name, sha256=hashlib.sha256(data).hexdigest()), data


@pytest.fixture
def row(served: tuple[PackagedUpstream, bytes]) -> PackagedUpstream:
    return served[0]


@pytest.fixture
def package(served: tuple[PackagedUpstream, bytes], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The upstream is served; the list holds the downloads."""
    row, data = served
    downloads: list[str] = []

    def download(package: PackagedUpstream, target: Path) -> None:
        downloads.append(package.file)
        target.write_bytes(data)

    monkeypatch.setattr(upstream, "check_upstream", lambda name: row)
    monkeypatch.setattr(package_index, "download", download)
    return downloads


def test_package_is_fetched_once_and_only_its_ck_tree_is_kept(
    package: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tree = locate("aiter", cache=tmp_path)
    assert locate("aiter", cache=tmp_path) == tree
    assert len(package) == 1
    assert [line.split()[0] for line in caplog.messages] == ["downloading", "unpacking"]
    assert (tree.fmha / "generate.py").exists()
    assert (tree.root / "LICENSE").exists()
    assert not (tree.root / "profiler").exists()
    assert all(tree.root in file.parents for file in tmp_path.rglob("outside.hpp"))


def test_runs_at_once_fetch_once(package: list[str], tmp_path: Path) -> None:
    roots: list[Path] = []
    runs = [threading.Thread(target=lambda: roots.append(locate("aiter", cache=tmp_path).root)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(set(roots)) == 1
    assert len(roots) == 4
    assert len(package) == 1


def leftovers(cache: Path) -> list[str]:
    return [file.name for file in (cache / "upstream").iterdir() if not file.name.endswith(".lock")]


def test_wrong_sha256_is_refused_and_nothing_is_left(
    package: list[str], row: PackagedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = msgspec.structs.replace(row, sha256="0" * 64)
    monkeypatch.setattr(upstream, "check_upstream", lambda name: wrong)
    with pytest.raises(TrustError, match=r"sha256 is [0-9a-f]{64}, pinned is 0{64} \(matrix/upstreams.yaml\)"):
        locate("aiter", cache=tmp_path)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("digit", [0, 16, 63])
def test_wrong_digit_of_sha256_is_refused_with_tree_in_cache(
    package: list[str], row: PackagedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digit: int
) -> None:
    tree = locate("aiter", cache=tmp_path)
    other = row.sha256[:digit] + ("1" if row.sha256[digit] == "0" else "0") + row.sha256[digit + 1 :]
    monkeypatch.setattr(upstream, "check_upstream", lambda name: msgspec.structs.replace(row, sha256=other))
    with pytest.raises(TrustError, match=f"sha256 is {row.sha256}, pinned is {other}"):
        locate("aiter", cache=tmp_path)
    monkeypatch.setattr(upstream, "check_upstream", lambda name: row)
    assert (locate("aiter", cache=tmp_path), len(package)) == (tree, 2)


def test_interrupted_download_leaves_nothing(
    package: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(package: PackagedUpstream, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(package_index, "download", interrupt)
    with pytest.raises(KeyboardInterrupt):
        locate("aiter", cache=tmp_path)
    assert leftovers(tmp_path) == []


def test_find_links_serve_package_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's own configuration decides where files come from; an sdist is fetched without being built."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "flash_attn-2.8.3.post2.tar.gz").write_bytes(b"an sdist")
    settings = {"no-index": "true", "find-links": str(shelf)}
    monkeypatch.setattr(package_index, "pip_settings", lambda: settings)
    package_index.download(upstreams()["flash-attn"], tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"an sdist"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"no-index": "1"}, "the configured indexes offer nothing"),
        ({"index-url": "http://127.0.0.1:9/simple/"}, "neither in the cache nor to be downloaded"),
    ],
)
def test_message_without_network_has_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], reason: str
) -> None:
    monkeypatch.setattr(package_index, "pip_settings", lambda: settings)
    with pytest.raises(ServiceError, match=reason) as error:
        locate("aiter", cache=tmp_path)
    assert "PIP_INDEX_URL, PIP_FIND_LINKS" in str(error.value)
    assert error.value.exit_code == 12
    assert leftovers(tmp_path) == []


def test_changed_or_lost_file_of_unpacked_tree_is_named(
    package: list[str], row: PackagedUpstream, tmp_path: Path
) -> None:
    tree = locate("aiter", cache=tmp_path)
    assert damage(row, tmp_path) == []
    (tree.root / "include/ck_tile/core.hpp").write_text("/")
    (tree.root / "include/ck_tile/own.hpp").write_text("/")
    (tree.root / "LICENSE").unlink()
    assert damage(row, tmp_path) == [
        f"{row.tree}/LICENSE: No such file or directory",
        f"{row.tree}/include/ck_tile/core.hpp: changed",
        f"{row.tree}/include/ck_tile/own.hpp: added",
    ]
    (package_folder(row, tmp_path) / "files.sha256").unlink()
    assert damage(row, tmp_path) == ["files.sha256: No such file or directory"]


def same_size_and_time(tree: Path) -> None:
    header = tree / "include/ck_tile/core.hpp"
    before = header.stat()
    header.write_text("/?")
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))


def list_cut_short(tree: Path) -> None:
    listed = next(folder for folder in tree.parents if (folder / "files.sha256").exists()) / "files.sha256"
    listed.write_text("".join(line for line in listed.read_text().splitlines(keepends=True) if "core" not in line))


@pytest.mark.parametrize("damaging", [same_size_and_time, list_cut_short])
def test_damaged_tree_is_refused_before_anything_is_compiled(
    package: list[str], row: PackagedUpstream, tmp_path: Path, damaging: Callable[[Path], None]
) -> None:
    damaging(locate("aiter", cache=tmp_path).root)
    with pytest.raises(TrustError, match=r"include/ck_tile/core\.hpp: .*\. Delete .*: it is unpacked again\."):
        locate("aiter", cache=tmp_path)
    shutil.rmtree(package_folder(row, tmp_path))
    locate("aiter", cache=tmp_path)
    assert (len(package), damage(row, tmp_path)) == (2, [])


@pytest.mark.parametrize("lost", ["", str(FMHA / "generate.py")])
def test_tree_that_was_deleted_is_unpacked_again(
    package: list[str], row: PackagedUpstream, tmp_path: Path, lost: str
) -> None:
    tree = locate("aiter", cache=tmp_path)
    (shutil.rmtree if not lost else Path.unlink)(tree.root / lost)
    assert locate("aiter", cache=tmp_path) == tree
    assert (len(package), damage(row, tmp_path)) == (2, [])


@pytest.mark.parametrize("below", ["", "deeper"])
def test_cache_that_is_file_is_refused(package: list[str], tmp_path: Path, below: str) -> None:
    cache = tmp_path / "cache"
    cache.write_text("")
    with pytest.raises(
        OutputError, match=r"can't be written: .* is a file(, or a link .*)?: set CKPM_CACHE to another folder\.$"
    ):
        locate("aiter", cache=cache / below)
    assert package == []


def test_checkout_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, CODEGEN["ck-2025-11"])

    def refuse(file: Path) -> bytes:
        if file.suffix == ".py":
            return file.read_bytes()
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(upstream, "content", refuse)
    with pytest.raises(SetupError, match=r"fmha_fwd\.hpp: this file of the CK tree can't be read: Permission denied"):
        checkout(tmp_path)


@pytest.mark.parametrize("name", ["codegen/ops/fmha_batch_prefill.py", "fmha_fwd.hpp", "codegen/utils.py"])
def test_file_over_size_limit_is_named_and_not_read(tmp_path: Path, name: str) -> None:
    root = make_tree(tmp_path, CODEGEN["rocm-libraries-2026"])
    os.truncate(root / FMHA / name, 1 << 40)
    with pytest.raises(SetupError, match=rf"{name}: this file of the CK tree can't be read: it has more than 64 MiB"):
        checkout(root)


def test_include_in_another_encoding_is_followed(tmp_path: Path) -> None:
    root = make_tree(tmp_path, CODEGEN["ck-2025-11"])
    header = root / "include/ck_tile/deep.hpp"
    header.write_bytes(b'#include "ck_tile/\xe9.hpp"\n')
    (root / "include/ck_tile" / os.fsdecode(b"\xe9.hpp")).write_text("")
    assert os.fsdecode(b"\xe9.hpp") in {file.name for file in include_closure(root)}
    assert len(digest(root, include_closure(root))) == 64


def test_our_headers_precede_tree_of_another_upstream(
    package: list[str], row: PackagedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = locate("aiter", cache=tmp_path / "cache")
    header = tmp_path / "kernels/ours/fmha_fwd.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("// ours\n")
    monkeypatch.setattr(upstream, "_KERNELS", tmp_path / "kernels")
    derived = msgspec.structs.replace(row, name="ckpm", base="aiter", headers="ours", dialect="rocm-libraries-2026")
    monkeypatch.setattr(upstream, "check_upstream", lambda name: derived)
    tree = locate("ckpm", cache=tmp_path / "cache")
    assert (tree.name, tree.dialect, tree.root) == ("ckpm", "rocm-libraries-2026", plain.root)
    assert tree.includes == (header.parent, *plain.includes)
    assert len(package) == 1
    assert str(header) in [state[0] for state in tree.headers]
    assert tree.identity.startswith(plain.identity)
    header.write_text("// edited\n")
    edited = locate("ckpm", cache=tmp_path / "cache")
    assert len({plain.identity, tree.identity, edited.identity}) == 3
    copy = tmp_path / "copy/fmha_fwd.hpp"
    copy.parent.mkdir()
    copy.write_text("// edited\n")
    elsewhere = locate("ckpm", cache=tmp_path / "cache", headers=copy.parent)
    assert elsewhere.includes == (copy.parent, *plain.includes)
    assert elsewhere.identity == edited.identity  # of the same text, wherever it lies


def test_headers_for_upstream_without_headers_raise(tmp_path: Path) -> None:
    choices = r"Those that have: ckpm, ckpm-extended, ckpm-v3, ckpm-serving\."
    for name in ("aiter", "checkout"):
        with pytest.raises(UsageError, match=rf"--headers: upstream {name} has no headers of ours\. {choices}"):
            locate(name, cache=tmp_path / "cache", headers=tmp_path)
    with pytest.raises(
        UsageError, match=rf"--headers: {tmp_path} holds no fmha_fwd\.hpp\. Give a copy of .*/include_prefill"
    ):
        locate("ckpm", cache=tmp_path / "cache", headers=tmp_path)
