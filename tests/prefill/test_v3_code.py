"""The schedule of V3's kernels in their machine code: waits, branches, cost of a tile, registers.

The texts of pipeline.hpp, products.hpp and page_stream.hpp say what holds; here it is read from their code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from ckpm.kernels.code import code_object
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.keys import Key
from ckpm_emulator.inspection.waits import waited_for
from tests.prefill.copies import PrefillCopy
from tests.prefill.defects import DEFECTS
from tests.prefill.instead import ARCH, EXTENDED, V3
from tests.prefill.v3_code import KernelCode, Loop, Way, is_branch, is_dword_load, is_load_to_lds, is_mfma, plain, read

SCORES = 32  # of a lane in a tile: 64 keys and 32 queries on 64 lanes
PRODUCTS = {"fp8bf16": "v_mfma_f32_32x32x64_f8f6f4", "bf16": "v_mfma_f32_32x32x16_bf16"}
SUM = "v_mfma_f32_16x16x128_f8f6f4"  # of the weights, in fp8
TILES = (2, 1, 2, 1)  # of a pass of each loop: whole tiles, then those that a bound cuts; in either group
ROW_OF_A_LOAD = 128  # bytes of a token that one load into LDS takes


@dataclass(frozen=True, slots=True)
class Kernel:
    key: Key
    code: KernelCode
    resources: code_object.KernelResources

    @property
    def fp8(self) -> bool:
        return self.key.dtype == "fp8bf16"

    @property
    def products(self) -> tuple[int, int]:
        """The products of a tile, and those that add its weights up.

        A product multiplies over 64 columns of K, or keys of V, in fp8. In 16 bits it multiplies over 16. Scores have
        two halves of 32 keys, and V has blocks of 32 columns.
        """
        depth = 64 if self.fp8 else 16
        return 2 * self.key.hdim_q // depth + 64 // depth * self.key.hdim_v // 32, int(self.fp8)

    @property
    def loads(self) -> int:
        """The number of a wave's loads into LDS for a tile: K and V, both in parts."""
        element = 1 if self.fp8 else 2
        return sum(-(-dim * element // ROW_OF_A_LOAD) for dim in (self.key.hdim_q, self.key.hdim_v))

    def loops(self) -> list[Loop]:
        """The loops of each group: one for whole tiles, one for tiles that a bound cuts."""
        loops = self.code.tile_loops()
        assert len(loops) == 4, self.key.name
        return loops

    def iterations(self) -> list[tuple[int, Way]]:
        """The way around each loop on which no score has run ahead, and its number of tiles."""
        return [(tiles, min(loop.ways, key=len)) for tiles, loop in zip(TILES, self.loops(), strict=True)]


@pytest.fixture(scope="module")
def kernels(copy: PrefillCopy, v3_keys: tuple[Key, ...], extended_keys: tuple[Key, ...]) -> tuple[Kernel, ...]:
    """The kernels with one mask for each table, of V3's 32. The tables differ only before the loops.

    And of ckpm-extended's the plainest of each page size, layout, head dim and scale, without LSE, in fp8 and bf16.
    """
    masks = {"sglang": "no", "vllm": "causal"}
    v3 = [key for key in v3_keys if key.pipeline.endswith("_v3") and key.mask == masks[str(key.kv_table)]]
    assert len(v3) == 16
    plain = [
        key
        for key in extended_keys
        if key.pipeline.endswith("_v3")
        and key.dtype != "fp16"
        and (key.logits, key.lse, key.mask) == (False, False, "no")
    ]
    beyond = [key for key in plain if key.kv_table == "sglang"]
    assert len(beyond) == 18 + 2 * 11 + 3 * 7  # 11 each at head dims 64 and 256, 7 each in bf16 at 64, 128 and 192
    return *built(copy, v3), *built(copy, beyond, EXTENDED)


def built(copy: PrefillCopy, keys: Sequence[Key], upstream: str = V3) -> tuple[Kernel, ...]:
    by_name = {key.name: key for key in keys}
    folder = copy.build(keys, upstream)
    listed = Manifest.read(folder / MANIFEST).kernels
    symbols = {row.symbol: name for name in by_name for row in listed[name].resources_on(ARCH)}
    codes = read(folder / LIBRARY, list(symbols), ARCH)
    resources = {
        kernel.symbol: kernel
        for elf in code_object.bundles(folder / LIBRARY)[ARCH]
        for kernel in code_object.kernels(elf)
    }
    assert len(codes) == len(symbols) == len(keys)
    return tuple(Kernel(by_name[symbols[symbol]], code, resources[symbol]) for symbol, code in codes.items())


def test_wait_for_lookup_leaves_loads_in_flight(kernels: tuple[Kernel, ...]) -> None:
    """The lookup is the oldest operation in flight, on every way to the wait."""
    for kernel in kernels:
        assert wrong_waits(kernel) == [], kernel.key.name


def test_wrong_wait_for_lookup_is_found(copy: PrefillCopy, kernels: tuple[Kernel, ...]) -> None:
    with copy.edit(DEFECTS["the wait for a page id is for one load too few"].edits):
        (kernel,) = built(copy, (kernels[0].key,))
    wrong = wrong_waits(kernel)
    assert len(wrong) == sum(tiles for tiles, _ in kernel.iterations())
    assert all("vmcnt(0)" in message and "pll under way" in message for message in wrong), wrong


def wrong_waits(kernel: Kernel) -> list[str]:
    """The waits in loops that treat a lookup, or a load into LDS, unlike the schedule.

    In front of the loads into LDS are the page id and, with block scales, those of a page. What waits for the loads
    themselves is the wait before the barrier that ends a slot.
    """
    code, loops = kernel.code, kernel.loops()
    lookups_first = "ppp" if kernel.key.qscale == "kv_blockscale" else "p"
    expected = (lookups_first + "l" * kernel.loads, kernel.loads)
    wrong, consumed = [], 0
    before = code.in_flight()
    for at in sorted(frozenset[int]().union(*(loop.body for loop in loops))):
        wait = code.instructions[at]
        if wait.name != "s_waitcnt":
            continue
        most = waited_for(wait)[0]
        for queue in before[at]:
            kinds = "".join(kind(code, number) for number in queue)
            gone = kinds[: max(len(kinds) - most, 0)]
            lookups = [position for position, letter in enumerate(gone) if letter == "p" and "l" in kinds[position:]]
            consumed += bool(lookups)
            ends_slot = code.instructions[at + 1].name == "s_barrier"
            if (lookups and (kinds, most) != expected) or ("l" in gone and not ends_slot):
                wrong.append(f"pc 0x{wait.pc:x}: {wait.text} with {kinds} under way")
    assert consumed >= len(loops)
    return wrong


def kind(code: KernelCode, at: int) -> str:
    """The kind of an instruction: p (a dword, page id or scale), l (a load into LDS), or ?."""
    instruction = code.instructions[at]
    return "l" if is_load_to_lds(instruction) else "p" if is_dword_load(instruction) else "?"


def test_barrier_of_each_tile_parts_its_products(kernels: tuple[Kernel, ...]) -> None:
    for kernel in kernels:
        for tiles, way in kernel.iterations():
            phases = kernel.code.phases(way)
            products = [Counter(plain(kernel.code.instructions[at]) for at in phase) for phase in phases]
            counts = [(counter[PRODUCTS[kernel.key.dtype]], counter[SUM]) for counter in products]
            assert counts == [kernel.products] * tiles, kernel.key.name


def test_products_have_priority(kernels: tuple[Kernel, ...]) -> None:
    for kernel in kernels:
        for _, way in kernel.iterations():
            instructions = [kernel.code.instructions[at] for at in way]
            marks = [
                instruction for instruction in instructions if is_mfma(instruction) or instruction.name == "s_setprio"
            ]
            start = [mark.text for mark in marks].index("s_setprio 1")  # the loop may begin between products
            priority = 0
            for mark in (*marks[start:], *marks[:start]):
                if mark.name == "s_setprio":
                    priority = int(mark.text.split()[1])
                else:
                    assert priority == 1, kernel.key.name


def test_tile_has_no_branch_but_over_rare_work(kernels: tuple[Kernel, ...]) -> None:
    """A tile of fp8 branches over the weights made again, and where a page may begin over another scale of V."""
    for kernel in (kernel for kernel in kernels if kernel.fp8):
        for (tiles, way), loop in zip(kernel.iterations(), kernel.loops(), strict=True):
            names = [kernel.code.instructions[at].name for at in way if is_branch(kernel.code.instructions[at])]
            conditional = [name for name in names if name.startswith("s_cbranch_vcc")]
            page = kernel.key.page_size or 1
            of_pages = (
                sum(tile * 64 % page == 0 for tile in range(tiles)) if kernel.key.qscale == "kv_blockscale" else 0
            )
            rare = tiles + of_pages
            assert len(conditional) == rare, kernel.key.name
            assert len(loop.ways) == 2**rare, kernel.key.name
            most = max(loop.ways, key=lambda taken: len([*taken]))
            longest = Counter(plain(kernel.code.instructions[at]) for at in set(most) - set(way))
            of_o = kernel.key.hdim_v // 2  # numbers of a lane
            assert longest["v_exp_f32"] == (SCORES + 1) * tiles, kernel.key.name
            assert of_o * rare <= longest["v_mul_f32"] < (of_o + 6) * rare, kernel.key.name


def test_tile_has_one_load_of_each_part_and_one_lookup(kernels: tuple[Kernel, ...]) -> None:
    for kernel in kernels:
        for tiles, way in kernel.iterations():
            kinds = Counter(
                kind(kernel.code, at) for at in way if kernel.code.instructions[at].format in ("MUBUF", "GLOBAL")
            )
            scales = 2 if kernel.key.qscale == "kv_blockscale" else 0
            assert kinds == {"l": kernel.loads * tiles, "p": (1 + scales) * tiles}, kernel.key.name


def test_weight_costs_one_exp_and_no_maximum(kernels: tuple[Kernel, ...]) -> None:
    """A score below a soft cap costs another exp, for tanh."""
    for kernel in kernels:
        capped = 2 if kernel.key.logits else 1
        for tiles, way in kernel.iterations():
            counts = kernel.code.counts(way)
            assert counts["v_exp_f32"] == capped * SCORES * tiles, kernel.key.name
            assert counts["v_max3_f32"] == 0, kernel.key.name


def traits(key: Key) -> tuple[object, ...]:
    return key.dtype, key.page_size, key.hdim_q, key.kv_layout, key.mask, key.logits, key.kv_table


def test_block_scales_cost_no_pass_over_tile(kernels: tuple[Kernel, ...]) -> None:
    """Block scales add fewer instructions than one for each pair of a lane's scores."""
    unscaled_kernels = {traits(kernel.key): kernel for kernel in kernels if kernel.key.qscale == "pertensor"}
    compared = 0
    for kernel in (kernel for kernel in kernels if kernel.key.qscale == "kv_blockscale"):
        other = unscaled_kernels[traits(kernel.key)]
        for (tiles, scaled), (_, unscaled) in zip(kernel.iterations(), other.iterations(), strict=True):
            more = kernel.code.counts(scaled) - other.code.counts(unscaled)
            arithmetic = sum(count for name, count in more.items() if name.startswith("v_"))
            of_scores = sum(more[name] for name in ("v_mul_f32", "v_pk_mul_f32", "v_fma_f32", "v_exp_f32"))
            assert of_scores < tiles * SCORES / 2
            assert arithmetic < tiles * SCORES, (kernel.key.name, more)
            compared += 1
    assert compared == (4 + 7 + 4 + 4) * 4


def test_registers_allow_two_waves_without_spills(kernels: tuple[Kernel, ...]) -> None:
    for kernel in kernels:
        resources = kernel.resources
        assert (resources.scratch_bytes, resources.vgpr_spills, resources.sgpr_spills) == (0, 0, 0), kernel.key.name
        assert resources.vgpr <= 256, kernel.key.name
        assert (resources.max_workgroup, resources.occupancy_waves) == (512, 2), kernel.key.name
