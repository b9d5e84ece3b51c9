"""The text of the newest dialect compiles, and its host side chooses and hands over what it should.

No CK tree of 2026 can be had here, so tests/data/interface_2026 declares its interface. Units, dispatch and harness are
compiled for the host with the embedded toolchain and linked with a fake HIP runtime; the C ABI is driven through
kernels.harness. What dispatch should choose is worked out again below, from upstream's rules, not from our templates.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernels import cpp
from kernels.build import INCLUDE, VERSION_SCRIPT
from kernels.harness import FIELDS, Bias, KvLayout, KvTable, Library, Mask, Problem, QScale, Status, load
from kernels.render import dispatch_text, render
from kernels.settings import cache_folder
from kernels.toolchains import Toolchain, compile_command, detect, device_command, link_command
from kernels.units import Unit
from matrix.dialects import dialect
from matrix.keys import Key
from matrix.selection import Selection, select

DIALECT = "rocm-libraries-2026"
INTERFACE = Path(__file__).resolve().parent.parent / "data" / "interface_2026"
MASK_IMPLS = ("simplified", "generic")
FIVE, EIGHT = "five", "eight"  # parameters of fmha_batch_prefill_select_kv_load_mode
INT32_MAX = 2**31 - 1
NO_DEVICE = 100  # hipErrorNoDevice

# ---------------------------------------------------------------------------------------------- selections


def all_keys(mask_impl: str) -> list[Key]:
    return select(dialect(DIALECT), Selection(archs=("gfx950",), mask_impl=mask_impl))


AXES = (
    *("dtype", "hdim_q", "tile", "logits", "qscale", "mask", "bias", "lse", "dropout", "sink"),
    *("kv_layout", "kv_table", "page_size", "load"),
)


def sample(mask_impl: str) -> list[Key]:
    """The smoke tier, and kernels that show every pair of axis values that occurs; in upstream's order."""
    smoke = select(dialect(DIALECT), Selection(archs=("gfx950",), mask_impl=mask_impl, tier="smoke"))
    every = all_keys(mask_impl)
    kept, seen = {key.name for key in smoke}, set()
    for key in sorted(every, key=lambda key: hashlib.sha256(key.name.encode()).digest()):
        values = [(axis, getattr(key, axis)) for axis in AXES]
        pairs = set(itertools.combinations(values, 2))
        if not pairs <= seen:
            seen |= pairs
            kept.add(key.name)
    return [key for key in every if key.name in kept]


# ---------------------------------------------------------------------------------------------- building


class Compiler:
    """The embedded toolchain's host side over the interface's headers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.toolchain: Toolchain = detect("embedded", cache=cache_folder())

    def _run(self, command: Sequence[str]) -> None:
        run = subprocess.run(
            command, env={**os.environ, **self.toolchain.environment}, capture_output=True, text=True, timeout=300
        )
        said = [line for line in run.stderr.splitlines() if line and "-Wunused-command-line-argument" not in line]
        assert (run.returncode, said) == (0, [])

    def compile(self, source: Path, *extra: str) -> str:
        words = "\0".join((source.name, str(source.parent), *extra))
        cuid = hashlib.sha256(words.encode()).hexdigest()[:16]
        output = self.folder / f"{source.stem}.{cuid}.o"
        self._run(
            compile_command(
                self.toolchain,
                archs=["gfx950"],
                source=str(source),
                output=str(output),
                includes=[str(INTERFACE), str(INCLUDE)],
                cuid=cuid,
                prefix_map={},
                extra=("--offload-host-only", *extra),
            )
        )
        return str(output)

    def preprocess(self, source: Path, arch: str) -> str:
        """What the device pass of ``arch`` sees of a unit."""
        output = self.folder / f"{source.stem}.{arch}.ii"
        self._run(
            device_command(
                self.toolchain,
                arch=arch,
                source=str(source),
                output=str(output),
                includes=[str(INTERFACE), str(INCLUDE)],
                cuid="0" * 16,
                prefix_map={},
                extra=("-E",),
            )
        )
        return output.read_text()

    def link(self, name: str, objects: Sequence[str]) -> Library:
        library = self.folder / f"{name}.so"
        self._run(
            link_command(
                self.toolchain,
                objects=objects,
                output=str(library),
                version_script=str(VERSION_SCRIPT),
                soname=library.name,
            )
        )
        return load(library)


def units_of(keys: Sequence[Key]) -> list[Unit]:
    """Two large units, for the headers take most of the time; in earnest kernels.units.plan makes small ones."""
    return [Unit(word, tuple(key for key in keys if key.load == word)) for word in ("bload", "gload")]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("newest"))


@pytest.fixture(scope="module")
def samples() -> Mapping[str, list[Key]]:
    return {mask_impl: sample(mask_impl) for mask_impl in MASK_IMPLS}


@pytest.fixture(scope="module")
def libraries(compiler: Compiler, samples: Mapping[str, list[Key]]) -> Mapping[tuple[str, str], Library]:
    """The samples' libraries by masks and selector form; units are compiled once for both forms."""
    runtime = compiler.compile(INTERFACE / "fake_runtime.hip")
    made = {}
    for mask_impl, keys in samples.items():
        units = units_of(keys)
        for form in (FIVE, EIGHT):
            features = cpp.features(DIALECT, selector_takes_base=form == EIGHT)
            folder = compiler.folder / mask_impl / form
            files = render(keys, units, DIALECT, features, folder)
            extra = ("-DINTERFACE_2026_FIVE",) if form == FIVE else ()
            host = [compiler.compile(file, *extra) for file in (*files["dispatch"], *files["harness"])]
            if form == FIVE:
                kernels = [compiler.compile(file) for file in files["units"]]
            made[mask_impl, form] = compiler.link(f"lib{mask_impl}_{form}", [*kernels, *host, runtime])
    return made


@pytest.fixture(scope="module")
def whole(compiler: Compiler, libraries: Mapping[tuple[str, str], Library]) -> Library:
    """The dispatch over every kernel with simplified masks. Kernels are stubs that note their name."""
    folder = compiler.folder / "whole"
    folder.mkdir()
    features = cpp.features(DIALECT, selector_takes_base=True)
    (folder / "dispatch.hip").write_text(dispatch_text(all_keys("simplified"), features))
    sources = [folder / "dispatch.hip", compiler.folder / "simplified" / EIGHT / "harness.hip"]
    sources += [INTERFACE / "stubs.hip", INTERFACE / "fake_runtime.hip"]
    objects = [compiler.compile(source, "-DINTERFACE_2026_STUBS", "-O0") for source in sources]
    return compiler.link("libwhole", objects)


def fake(
    library: Library, *, cus: int = 256, device: int = 0, launch: int = 0, stale: int = 0, throws: str | None = None
) -> None:
    """Set the fake runtime: compute units, errors of asking for the device and of launching, an exception."""
    library.abi.ckpm_fake_set(cus, device, launch, stale, None if throws is None else throws.encode())


def record(library: Library) -> dict[str, str]:
    """What arrived at the last launch; empty if there was none."""
    library.abi.ckpm_fake_record.restype = ctypes.c_char_p
    return dict(line.split("=", 1) for line in library.abi.ckpm_fake_record().decode().splitlines())


# ------------------------------------------------------------------------- upstream's dispatch, once more in Python

BYTES = {"fp16": 2, "bf16": 2, "fp8bf16": 1}
BIAS = {"no": Bias.NONE, "bias": Bias.ELEMENTWISE, "alibi": Bias.ALIBI}
QSCALE = {"no": QScale.NONE, "pertensor": QScale.PERTENSOR, "kv_blockscale": QScale.KV_BLOCKSCALE}
LAYOUT = {"linear": KvLayout.LINEAR, "vectorized": KvLayout.VECTORIZED}
TABLE = {"sglang": KvTable.SGLANG_1D, "vllm": KvTable.VLLM_2D}
MASKS = {
    ("simplified", "no"): {Mask.NONE},
    ("simplified", "mask"): {Mask.TOP_LEFT, Mask.BOTTOM_RIGHT, Mask.WINDOW},
    ("generic", "no"): {Mask.NONE},
    ("generic", "causal"): {Mask.TOP_LEFT, Mask.BOTTOM_RIGHT},
    ("generic", "generic"): {Mask.WINDOW},
}


def load_mode(form: str, p: Mapping[str, Any], bn0: int, size: int) -> str:
    if p["page_size"] >= bn0:
        return "bload"
    pool_k = p["num_total_pages"] * p["batch_stride_k"] * size
    pool_v = p["num_total_pages"] * p["batch_stride_v"] * size
    if form == FIVE:
        return "gload" if pool_k > INT32_MAX else "bload"
    beyond = max(p["k"] % 2**32 + pool_k, p["v"] % 2**32 + pool_v) > INT32_MAX
    return "gload" if p["page_size"] == 1 or beyond else "bload"


class Model:
    """Upstream's nest: dtype, then head dim, then one chain of arms of which the first that fits is taken."""

    def __init__(self, keys: Sequence[Key], form: str) -> None:
        self.form = form
        self.nest: dict[str, dict[int, dict[tuple[Any, ...], list[Key]]]] = {}
        self.widest_v: dict[tuple[str, int], int] = {}
        for key in keys:
            exact = (key.logits, BIAS[key.bias], key.lse, key.dropout, QSCALE[key.qscale], key.sink)
            exact += (LAYOUT[key.kv_layout], TABLE[key.kv_table], key.page_size)  # type: ignore[index]
            arms = self.nest.setdefault(key.dtype, {}).setdefault(key.hdim_q, {})
            arms.setdefault(exact, []).append(key)
            self.widest_v[key.dtype, key.hdim_q] = key.tile.bn1

    def choose(self, p: Mapping[str, Any], cus: int) -> str | None:
        dtype = p["data_type"]
        fitting = [
            arms
            for hdim, arms in self.nest.get(dtype, {}).items()
            if p["hdim_q"] <= hdim and p["hdim_v"] <= self.widest_v[dtype, hdim]
        ]
        if not fitting:
            return None
        vec = 16 // BYTES[dtype]
        if not p["is_group_mode"] or not p["is_v_rowmajor"] or p["hdim_q"] % vec or p["hdim_v"] % vec:
            return None
        exact = (bool(p["has_logits_soft_cap"]), p["bias_type"], bool(p["has_lse"]), bool(p["has_dropout"]))
        exact += (p["qscale_type"], bool(p["has_sink"]), p["kv_layout"], p["kv_table"], p["page_size"])
        blocks = p["batch"] * p["nhead_q"] * -(-p["max_seqlen_q"] // 128)
        single = ctypes.c_float
        few = blocks < single(cus * single(0.8).value).value
        for key in fitting[0].get(exact, []):
            if p["mask_type"] not in MASKS[key.mask_impl, key.mask]:
                continue
            if key.tile.bm0 == 64 and not few:
                continue
            if load_mode(self.form, p, key.tile.bn0, BYTES[dtype]) == key.load:
                return key.name
        return None


# ---------------------------------------------------------------------------------------------- requests

ANY_POINTERS = {"q": 4096, "k": 4096, "v": 8192, "o": 12288, "kv_page_indices": 16384, "kv_indptr": 20480}
ANY_POINTERS |= {"seqlen_k_ptr": 24576, "kv_last_page_lens": 28672, "seqstart_q": 32768}


def pool(page_size: int, nhead_k: int, hdim: int, size: int, wanted: int) -> dict[str, int]:
    """Pages that hold about ``wanted`` bytes: the most that do not exceed it."""
    stride = page_size * nhead_k * hdim
    pages = max(1, wanted // (stride * size))
    return {"num_total_pages": pages, "batch_stride_k": stride, "batch_stride_v": stride}


def request(key: Key) -> dict[str, Any]:
    """A request that ``key`` serves, as far as pool and mode agree."""
    big = key.load == "gload"
    return {
        **ANY_POINTERS,
        "data_type": key.dtype,
        "is_group_mode": 1,
        "is_v_rowmajor": 1,
        "hdim_q": key.hdim_q,
        "hdim_v": key.hdim_v,
        "batch": 2,
        "nhead_q": 8,
        "nhead_k": 2,
        "max_seqlen_q": 128 if key.tile.bm0 == 64 else 128 * 64,
        "has_logits_soft_cap": int(key.logits),
        "bias_type": BIAS[key.bias],
        "mask_type": max(MASKS[key.mask_impl, key.mask]),
        "has_lse": int(key.lse),
        "has_dropout": int(key.dropout),
        "has_sink": int(bool(key.sink)),
        "qscale_type": QSCALE[key.qscale],
        "kv_layout": LAYOUT[str(key.kv_layout)],
        "kv_table": TABLE[str(key.kv_table)],
        "page_size": key.page_size,
        **pool(key.page_size or 0, 2, key.hdim_q, BYTES[key.dtype], 2**33 if big else 2**24),
    }


def _pools(p: Mapping[str, Any], rng: random.Random) -> dict[str, int]:
    """Around 2 GB of K; V like K, half or double of it; bases anywhere in their 4 GB."""
    size = BYTES.get(p["data_type"], 2)
    found = pool(p["page_size"], p["nhead_k"], 128, size, INT32_MAX + rng.choice((-(2**30), 0, 0, 2**30, 2**33)))
    found["num_total_pages"] += rng.choice((0, 0, 1))
    found["batch_stride_v"] = max(1, int(found["batch_stride_v"] * rng.choice((1, 0.5, 2))))
    bases = (4096, 2**32, 2**31 - 2**20, 2**33 + 2**20)
    return {**found, "k": rng.choice(bases), "v": rng.choice(bases)}


CHANGES: dict[str, Callable[[Mapping[str, Any], random.Random], dict[str, Any]]] = {
    "data_type": lambda p, rng: {"data_type": rng.choice(("fp16", "bf16", "fp8bf16", "fp8", "fp32", "bf16x", ""))},
    "hdim": lambda p, rng: {"hdim_q": rng.choice((8, 64, 72, 100, 128, 136, 192, 256, 264))},
    "hdim_v": lambda p, rng: {"hdim_v": rng.choice((8, 64, 72, 100, 128, 136, 192, 256, 264))},
    "page_size": lambda p, rng: {"page_size": rng.choice((1, 2, 16, 64, 128, 1024, 2048))},
    "kv_layout": lambda p, rng: {"kv_layout": rng.choice(list(KvLayout))},
    "kv_table": lambda p, rng: {"kv_table": rng.choice(list(KvTable))},
    "mask_type": lambda p, rng: {"mask_type": rng.choice(list(Mask))},
    "bias_type": lambda p, rng: {"bias_type": rng.choice(list(Bias))},
    "qscale_type": lambda p, rng: {"qscale_type": rng.choice(list(QScale))},
    "blocks": lambda p, rng: {"max_seqlen_q": 128 * rng.randint(1, 20) + rng.choice((-127, 0, 1))},
    "pool": _pools,
    **{
        name: (lambda p, rng, name=name: {name: rng.choice((0, 1, 2))})  # type: ignore[misc]
        for name in ("has_lse", "has_dropout", "has_sink", "has_logits_soft_cap")
    },
    "is_group_mode": lambda p, rng: {"is_group_mode": 0},
    "is_v_rowmajor": lambda p, rng: {"is_v_rowmajor": 0},
}


def requests(keys: Sequence[Key], around: int, seed: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Each key's own request, then ``around`` requests that differ from it in a few ways; with a count of CUs."""
    rng = random.Random(seed)
    for key in keys:
        yield request(key), 256
        for _ in range(around):
            asked = request(key)
            for name in rng.sample(list(CHANGES), rng.randint(1, 3)):
                asked |= CHANGES[name](asked, rng)
            yield asked, rng.choice((80, 104, 128, 256, 304, 320))


# ---------------------------------------------------------------------------------------------- tests

FORMS = [(mask_impl, form) for mask_impl in MASK_IMPLS for form in (FIVE, EIGHT)]


@pytest.mark.parametrize("mask_impl", MASK_IMPLS)
def test_sample_shows_every_axis_value(samples: Mapping[str, list[Key]], mask_impl: str) -> None:
    for axis in AXES:
        every = {getattr(key, axis) for key in all_keys(mask_impl)}
        assert {getattr(key, axis) for key in samples[mask_impl]} == every
    assert len(samples[mask_impl]) < 200


@pytest.mark.parametrize(("mask_impl", "form"), FORMS)
def test_kernels_are_the_selection_in_order(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], mask_impl: str, form: str
) -> None:
    library = libraries[mask_impl, form]
    assert library.dialect == DIALECT
    assert library.kernels == tuple(key.name for key in samples[mask_impl])
    assert library.abi.ckpm_kernel_name(-1) is None
    assert library.abi.ckpm_kernel_name(len(library.kernels)) is None


def test_problem_has_the_size_of_the_library(libraries: Mapping[tuple[str, str], Library]) -> None:
    for library in libraries.values():
        assert library.abi.ckpm_problem_bytes() == ctypes.sizeof(Problem)


@pytest.mark.parametrize(("mask_impl", "form"), FORMS)
def test_dispatch_chooses_as_upstream(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], mask_impl: str, form: str
) -> None:
    library, keys = libraries[mask_impl, form], samples[mask_impl]
    model = Model(keys, form)
    chosen = set()
    for asked, cus in requests(keys, 20, seed=len(form)):
        fake(library, cus=cus)
        launch = library.launch(Problem(**asked))
        expected = model.choose(asked, cus)
        assert launch.kernel == expected, asked
        assert (launch.status, launch.message) == (
            (Status.OK, "") if expected else (Status.UNSUPPORTED, "no kernel of this library serves the request")
        )
        assert library.abi.ckpm_fake_launches() == (1 if expected else 0)
        chosen.add(expected)
    assert None in chosen
    # with the 8-parameter selector a page of 1 token always takes 64-bit loads
    unreachable = {key.name for key in keys if form == EIGHT and key.page_size == 1 and key.load == "bload"}
    assert chosen - {None} == {key.name for key in keys} - unreachable


def test_whole_dispatch_chooses_as_upstream(whole: Library) -> None:
    keys = all_keys("simplified")
    assert whole.kernels == tuple(key.name for key in keys)
    model = Model(keys, EIGHT)
    chosen = set()
    for asked, cus in requests(keys, 1, seed=1):
        fake(whole, cus=cus)
        expected = model.choose(asked, cus)
        assert whole.launch(Problem(**asked)).kernel == expected, asked
        chosen.add(expected)
    assert len(chosen - {None}) == 4848 - 600  # the 600 bload kernels of page size 1


def find(keys: Sequence[Key], bm0: int) -> Key:
    """The smoke tier's masked bf16 kernel of page size 16 and ``bm0`` rows, without further features."""
    plain = f"_d128_bf16_group_ps16_bload_b{bm0}x", "_nlogits_nbias_mask_nlse_ndropout_nqscale_nsink_vectorized_sglang"
    return next(key for key in keys if plain[0] in key.name and key.name.endswith(plain[1]))


@pytest.mark.parametrize(
    ("blocks", "cus", "rows"), [(204, 256, 64), (205, 256, 128), (243, 304, 64), (244, 304, 128), (256, 320, 128)]
)
def test_short_tile_serves_few_blocks(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], blocks: int, cus: int, rows: int
) -> None:
    """Blocks are counted with 128 rows, whichever tile is asked about; the bound is 0.8 of the CUs."""
    library = libraries["simplified", EIGHT]
    asked = request(find(samples["simplified"], bm0=64))
    fake(library, cus=cus)
    launch = library.launch(Problem(**{**asked, "batch": 1, "nhead_q": 1, "nhead_k": 1, "max_seqlen_q": 128 * blocks}))
    assert f"_b{rows}x128" in (launch.kernel or "")


@pytest.mark.parametrize(
    ("form", "change", "load_word"),
    [
        # 2**16 pages of 2**14 elements of 2 bytes are 2 GB; of a base address the low half counts
        (FIVE, {"num_total_pages": 2**16 - 1}, "bload"),
        (FIVE, {"num_total_pages": 2**16}, "gload"),
        (FIVE, {"num_total_pages": 2**16 - 1, "batch_stride_v": 2**15}, "bload"),
        (FIVE, {"num_total_pages": 2**16 - 1, "k": 2**31}, "bload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32, "v": 2**32}, "bload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32 + 2**15 - 1, "v": 2**32}, "bload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32 + 2**15, "v": 2**32}, "gload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32, "v": 2**32 + 2**15}, "gload"),
        (EIGHT, {"num_total_pages": 2**15, "batch_stride_v": 2**15, "k": 2**32, "v": 2**32}, "gload"),
    ],
)
def test_pools_over_2_gb_take_64_bit_loads(
    libraries: Mapping[tuple[str, str], Library],
    samples: Mapping[str, list[Key]],
    form: str,
    change: Mapping[str, int],
    load_word: str,
) -> None:
    library, key = libraries["simplified", form], find(samples["simplified"], bm0=128)
    fake(library)
    strides = {"batch_stride_k": 2**14, "batch_stride_v": 2**14}
    launch = library.launch(Problem(**{**request(key), **strides, **change}))
    assert launch.kernel == key.name.replace("bload", load_word)


# ---- what arrives at a kernel

TYPES = {
    "fp16": "half,half,half,float,float,half,uint8,float,half,float,half",
    "bf16": "bf16,bf16,bf16,float,float,bf16,uint8,float,bf16,float,bf16",
    "fp8bf16": "fp8,fp8,fp8,float,float,float,uint8,float,fp8,float,bf16",
}
MASK_WORDS = {
    ("simplified", "no"): "simplified none",
    ("simplified", "mask"): "simplified",
    ("generic", "no"): "none",
    ("generic", "causal"): "causal",
    ("generic", "generic"): "window",
}


def arguments_of(key: Key) -> dict[str, str]:
    """A kernel's template arguments as the interface's kernel tells them; numbers are CK's enumerators."""
    tile = key.tile
    block, waves0, waves1, warp0, warp1 = (
        "x".join(str(getattr(tile, name)) for name in names.split())
        for names in ("bm0 bn0 bk0 bn1 bk1 bk0max", "rm0 rn0 rk0", "rm1 rn1 rk1", "wm0 wn0 wk0", "wm1 wn1 wk1")
    )
    numbers = {
        "logits": key.logits,
        "bias": ("no", "bias", "alibi").index(key.bias),
        "bias_grad": 0,
        "lse": key.lse,
        "dropout": key.dropout,
        "qscale": {"no": 0, "pertensor": 1, "kv_blockscale": 3}[key.qscale],
        "occupancy": -1,
        "skip_min_seqlen_q": 0,
        "sink": bool(key.sink),
        "page_size": key.page_size,
        "kv_layout": ("vectorized", "linear").index(str(key.kv_layout)),
        "kv_table": ("vllm", "sglang").index(str(key.kv_table)),
        "load": ("bload", "gload").index(str(key.load)),
        "group_mode": 1,
        "exp2": 1,
        "trload": 0,
        "v_rowmajor": 1,
    }
    return {
        "blocks_per_cu": "2",
        "arch_is_void": "1",
        "block": "256x1x1",
        "lds_bytes": "0",
        "types": TYPES[key.dtype],
        "mask": MASK_WORDS[key.mask_impl, key.mask],
        "tile": block,
        "waves0": waves0,
        "warp_tile0": warp0,
        "waves1": waves1,
        "warp_tile1": warp1,
        "pads": "1x1x1x1",
        "epilogue": ("half" if key.dtype == "fp16" else "bf16") + " m n",
        **{name: str(int(value or 0)) for name, value in numbers.items()},
    }


@pytest.mark.parametrize("mask_impl", MASK_IMPLS)
def test_launch_by_name_reaches_that_kernel(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], mask_impl: str
) -> None:
    """The named kernel is launched, whatever is asked for, and is built from what its name says."""
    library = libraries[mask_impl, FIVE]
    asked = Problem(**request(samples[mask_impl][0]))
    for key in samples[mask_impl]:
        fake(library)
        launch = library.launch(asked, key.name)
        assert (launch.status, launch.kernel, launch.message) == (Status.OK, key.name, "")
        found = record(library)
        expected = arguments_of(key)
        assert {name: found[name] for name in expected} == expected


# The argument of CK that each field of a problem goes to, where the names differ.
RENAMED = {
    **{name: f"{name}_ptr" for name in ("q", "k", "v", "bias", "q_descale", "k_descale", "v_descale", "rand_val")},
    **{name: f"{name}_ptr" for name in ("lse", "o", "seqstart_q", "sink")},
    "page_size": "page_block_size",
    "window_left": "window_size_left",
    "window_right": "window_size_right",
    "store_randval": "s_randval",
    "dropout_seed": "drop_seed",
    "dropout_offset": "drop_offset",
    "block_stride_kv_descale": "nblock_stride_kv_block_descale",
    "nhead_stride_kv_descale": "nhead_stride_kv_block_descale",
}
TRAITS_ONLY = {
    *("struct_bytes", "abi_version", "data_type", "bias_type", "qscale_type", "is_group_mode", "is_v_rowmajor"),
    *("has_logits_soft_cap", "has_lse", "has_dropout", "has_sink"),
}


@pytest.mark.parametrize("layout", list(KvLayout))
@pytest.mark.parametrize("table", list(KvTable))
def test_every_field_arrives(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], layout: KvLayout, table: KvTable
) -> None:
    """All fields hold different values; each is found in the argument that it is for, and no argument is left over."""
    library, key = libraries["simplified", EIGHT], samples["simplified"][0]
    values: dict[str, Any] = {}
    for index, (name, kind) in enumerate(FIELDS[3:], start=1):
        pointer = kind in (ctypes.c_void_p, ctypes.c_uint64)
        values[name] = (index << 36) + index if pointer else index / 4 if kind is ctypes.c_float else 100_000 + index
    values |= {"data_type": "bf16", "nhead_q": 96, "nhead_k": 12, "page_size": 2048, "kv_layout": layout}
    values |= {"kv_table": table, "mask_type": 3, "bias_type": 1, "qscale_type": 2, "store_randval": 1, "batch": 77}
    fake(library)
    launch = library.launch(Problem(**values), key.name)
    assert (launch.status, launch.milliseconds) == (Status.OK, 1.5)
    found = record(library)
    expected = {
        f"args.{RENAMED.get(name, name)}": f"{value:.9g}" if isinstance(value, float) else str(int(value))
        for name, value in values.items()
        if name not in TRAITS_ONLY | {"kv_layout", "kv_table", "stream", "warmup", "repeat"}
    }
    # CK counts these two the other way round
    expected["args.kv_memory_layout"] = "0" if layout is KvLayout.VECTORIZED else "1"
    expected["args.kv_lookup_table"] = "0" if table is KvTable.VLLM_2D else "1"
    assert {name: value for name, value in found.items() if name.startswith("args.")} == expected
    tiles = -(-values["max_seqlen_q"] // key.tile.bm0) * -(-values["hdim_v"] // key.tile.bn1)
    assert found["grid"] == f"96x{tiles}x77"
    stream = {name: found[name] for name in ("stream", "timed", "warmup", "repeat")}
    assert stream == {
        "stream": str(values["stream"]),
        "timed": "1",
        "warmup": str(values["warmup"]),
        "repeat": str(values["repeat"]),
    }


def test_a_launch_is_untimed_unless_repeated(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    library = libraries["simplified", EIGHT]
    fake(library)
    launch = library.launch(Problem(**request(samples["simplified"][-1])))
    assert (launch.status, launch.milliseconds, record(library)["timed"]) == (Status.OK, 0, "0")


# ---- what is refused, and what fails


def served(samples: Mapping[str, list[Key]]) -> Problem:
    """A request with a 2-D table that a library of the simplified sample serves in both forms."""
    found = next(key for key in samples["simplified"] if key.page_size == 1024 and key.kv_table == "vllm")
    return Problem(**request(found))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({name: 0}, "batch, nhead_q, nhead_k, hdim_q and hdim_v must be positive and max_seqlen_q not negative")
            for name in ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v")
        ),
        (
            {"max_seqlen_q": -1},
            "batch, nhead_q, nhead_k, hdim_q and hdim_v must be positive and max_seqlen_q not negative",
        ),
        ({"nhead_q": 9}, "nhead_q must be a multiple of nhead_k"),
        ({"mask_type": 4}, "mask_type must be 0 to 3"),
        ({"mask_type": -1}, "mask_type must be 0 to 3"),
        ({"bias_type": 3}, "bias_type must be 0 to 2"),
        ({"qscale_type": 3}, "qscale_type must be 0 to 2"),
        ({"kv_layout": 2}, "kv_layout must be 0 or 1"),
        ({"kv_table": -1}, "kv_table must be 0 or 1"),
        *(({name: None}, "q, k, v, o and kv_page_indices must not be null") for name in ("q", "o", "kv_page_indices")),
        ({"seqlen_k_ptr": None}, "a 1-D page table needs kv_indptr, a 2-D block table seqlen_k_ptr"),
        (
            {"kv_table": KvTable.SGLANG_1D, "kv_indptr": None},
            "a 1-D page table needs kv_indptr, a 2-D block table seqlen_k_ptr",
        ),
        ({"page_size": 0}, "page_size must be a power of two"),
        ({"page_size": 48}, "page_size must be a power of two"),
        (
            {"struct_bytes": 8},
            "the caller's ckpm_problem is of another version: use the ckpm.h beside this library",
        ),
        ({"abi_version": 2}, "the caller's ckpm_problem is of another version: use the ckpm.h beside this library"),
    ],
)
def test_impossible_problems_are_refused(
    libraries: Mapping[tuple[str, str], Library],
    samples: Mapping[str, list[Key]],
    change: Mapping[str, Any],
    message: str,
) -> None:
    library = libraries["simplified", EIGHT]
    fake(library)
    launch = library.launch(served(samples).replace(**change))
    assert (launch.status, launch.message, launch.kernel) == (Status.BAD_PROBLEM, message, None)
    assert library.abi.ckpm_fake_launches() == 0


def test_no_problem_and_short_messages(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    library = libraries["simplified", EIGHT]
    message = ctypes.create_string_buffer(b"xxxxxxxxxx", 10)
    assert library.abi.ckpm_launch(None, None, None, message, 6) == Status.BAD_PROBLEM
    assert message.raw == b"no pr\0xxxx"
    assert library.abi.ckpm_launch(None, None, None, None, 0) == Status.BAD_PROBLEM
    fake(library)
    assert library.abi.ckpm_launch(served(samples), None, None, None, 0) == Status.OK


def test_unknown_kernel(libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]) -> None:
    launch = libraries["simplified", EIGHT].launch(served(samples), "fmha_nothing")
    assert (launch.status, launch.kernel) == (Status.NO_KERNEL, None)
    assert launch.message == "no kernel 'fmha_nothing' in this library"


@pytest.mark.parametrize(
    ("set_up", "status", "message", "chooses"),
    [
        ({"device": NO_DEVICE}, Status.HIP_ERROR, "HIP: no device", False),
        ({"launch": NO_DEVICE}, Status.HIP_ERROR, "HIP Function Failed (x.hpp,1) no device", True),
        ({"stale": NO_DEVICE}, Status.OK, "", True),  # left behind by an earlier call
        ({"throws": "wrong strides"}, Status.EXCEPTION, "wrong strides", True),
        ({"throws": ""}, Status.EXCEPTION, "an exception that is no std::exception", True),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_failures_are_told_apart(
    libraries: Mapping[tuple[str, str], Library],
    samples: Mapping[str, list[Key]],
    set_up: Mapping[str, Any],
    status: Status,
    message: str,
    chooses: bool,
    by_name: bool,
) -> None:
    library, problem = libraries["simplified", EIGHT], served(samples)
    fake(library)
    name = library.launch(problem).kernel
    if by_name and not chooses:
        return  # only dispatch asks for the device
    fake(library, **set_up)
    launch = library.launch(problem, name if by_name else None)
    assert (launch.status, launch.message, launch.kernel) == (status, message, name if chooses else None)
    fake(library)
    assert library.launch(problem).status == Status.OK


def test_an_earlier_error_does_not_hide_that_nothing_fits(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    library = libraries["simplified", EIGHT]
    fake(library, stale=NO_DEVICE)
    assert library.launch(served(samples).replace(data_type="fp32")).status == Status.UNSUPPORTED


@pytest.mark.parametrize(("arch", "loads"), [("gfx90a", {"bload"}), ("gfx942", {"bload", "gload"})])
def test_device_code_of_64_bit_loads_is_guarded(
    compiler: Compiler, libraries: object, samples: Mapping[str, list[Key]], arch: str, loads: set[str]
) -> None:
    """gload kernels have device code on gfx94x and gfx950 alone; host code knows them everywhere."""
    found = set()
    for unit in units_of(samples["generic"]):
        load_word = unit.name
        text = compiler.preprocess(compiler.folder / "generic" / FIVE / f"{unit.name}.hip", arch)
        count = text.count("float fmha_batch_prefill_<ckpm::k")
        assert count in (0, len(unit.keys))
        found |= {load_word} if count else set()
    assert found == loads
