"""A family is one object in one table: a toy that is only put there is rendered, planned, named, found and tried."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jinja2
import pytest

from ckpm import commands as cli
from ckpm.base.errors import CodeObjectError, NameSyntaxError, UsageError
from ckpm.kernels.abi import FwdArguments
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families import table
from ckpm.kernels.families.family import INCLUDE, Host, KernelFamily, Scenario
from ckpm.kernels.families.libraries import host, libraries, library_of, library_with, option
from ckpm.kernels.families.render import instance_text
from ckpm.kernels.families.spellings import Features, environment, features
from ckpm.kernels.library.manifest import family_of
from ckpm.kernels.library.request import BuildRequest, prepare
from ckpm.kernels.library.write_manifest import match_symbols
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.families import Family as MatrixFamily
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites import kernel_cases
from tests.unit import manifests
from tests.unit.enumerated import keys_of
from tests.unit.sources import nodes

DIALECT = "ck-2025-11"
ROOT = Path(__file__).resolve().parents[3]

# ---- what the author of a family writes: its templates, its module, and its table in matrix/

TEMPLATES = {
    "toy_instance.hip.j2": "void {{ space }}_launch() { toy<{{ hdim }}>(\"{{ name }}\"{{ ', true' if loud }}); }\n",
    "toy_unit.hip.j2": '#include "toy.h"\n{% for text in instances %}{{ text }}{% endfor %}',
    "toy_dispatch.hip.j2": "void toy_dispatch() { {% for name in names %}{{ name }}(); {% endfor %}}\n",
    "toy_harness.hip.j2": 'const char* ckpm_toy_dialect() { return "{{ dialect }}"; }\n',
}


def toy_words(key: Key, features: Features, space: str) -> Mapping[str, str]:
    return {"space": space.replace("::", "_"), "hdim": str(key.hdim_q), "name": key.name}


def toy_dispatch(keys: Sequence[Key], features: Features) -> str:
    return environment().get_template("toy_dispatch.hip.j2").render(names=[key.name for key in keys])


def toy_harness(written_in: str, features: Features) -> str:
    return environment().get_template("toy_harness.hip.j2").render(dialect=written_in)


SMALL = SuiteCase(name="", suite="kernels", tier="full", group="toy")
TOY = KernelFamily(
    name="toy",
    substitutions=toy_words,
    instance="toy_instance.hip.j2",
    unit="toy_unit.hip.j2",
    choices=lambda key, features: {"loud": key.mask == "causal"},
    symbol=lambda values: re.compile(f"ToyKernelI{values['dtype']}_{values['mask']}E"),
    variants=lambda values, arch: 2,
    host=Host(
        dialects=lambda: (DIALECT,),
        dispatch=toy_dispatch,
        harness=toy_harness,
        arguments=FwdArguments,
        functions=("toy_",),
        headers=(INCLUDE,),
    ),
    scenarios=lambda key, keys: (Scenario(label="small", candidates=(SMALL,)),),
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> MatrixFamily:
    """The toy in the table of families, its templates beside ours, and its kernels in a dialect: fwd_v3's, renamed."""
    monkeypatch.setitem(table.FAMILIES, "toy", TOY)
    engine = environment()
    assert engine.loader is not None
    monkeypatch.setattr(engine, "loader", jinja2.ChoiceLoader([engine.loader, jinja2.DictLoader(TEMPLATES)]))
    dialect_of_toy = dialect(DIALECT)
    grammar = dialect_of_toy.family("fwd_v3").grammar.replace("fwd_v3", "toy")
    family = dataclasses.replace(dialect_of_toy.family("fwd_v3"), name="toy", grammar=grammar)
    monkeypatch.setitem(dialect_of_toy.hand_written._read, "toy", family)
    monkeypatch.setattr(dialect_of_toy.hand_written, "_names", [*dialect_of_toy.hand_written, "toy"])
    return family


NAMES = [f"fmha_toy_d128_{dtype}_{mask}" for dtype in ("fp16", "bf16") for mask in ("nmask", "mask")]


def test_toy_is_rendered_by_its_own_templates(
    toy: MatrixFamily, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sources"
    options = ["--dialect", DIALECT, "--arch", "gfx950", "--family", "toy", "--tier", "full", "--render", str(folder)]
    assert cli.main(["build", *options]) == 0
    assert "4 kernels in 2 units" in capsys.readouterr().out
    units = sorted(file for file in folder.glob("*.hip") if file.stem not in ("dispatch", "harness"))
    assert [file.stem[:-12] for file in units] == ["toy_d128_bf16_b256x32_", "toy_d128_fp16_b256x32_"]
    assert units[0].read_text() == (
        '#include "toy.h"\n'
        'void ckpm_k0_launch() { toy<128>("fmha_toy_d128_bf16_nmask"); }\n'
        'void ckpm_k1_launch() { toy<128>("fmha_toy_d128_bf16_mask", true); }\n'
    )
    calls = "".join(f"{name}(); " for name in NAMES)
    assert (folder / "dispatch.hip").read_text() == f"void toy_dispatch() {{ {calls}}}\n"
    assert (folder / "harness.hip").read_text() == f'const char* ckpm_toy_dialect() {{ return "{DIALECT}"; }}\n'


def test_toy_s_library_is_planned_in_folder_of_its_own(
    toy: MatrixFamily, stub_toolchain: Callable[..., Toolchain], request_for: Callable[..., BuildRequest]
) -> None:
    request = request_for(stub_toolchain(), families=("toy",))
    plan, keys = prepare(request)
    assert (request.library, request.folder, request.headers) == ("toy", "build/gfx950/aiter-toy", (INCLUDE,))
    assert [key.name for key in keys] == NAMES
    assert sorted(name for step in plan.steps for name in step.kernels) == sorted(NAMES)
    written = json.loads((request.work / request.folder / "plan.json").read_text())
    assert "family toy" in written["facts"]["selection"]


def test_toy_s_kernels_are_known_by_their_names_and_symbols(toy: MatrixFamily) -> None:
    assert {family_of(dialect(DIALECT), name).name for name in NAMES} == {"toy"}
    assert option("toy") == ("--family", "toy")
    assert library_of(["toy"], DIALECT) == "toy"
    keys = manifests.record(*NAMES, dialect=DIALECT).keys()
    assert [(key.dtype, key.mask) for key in keys[1:3]] == [("fp16", "causal"), ("bf16", "no")]
    assert {key.family for key in keys} == {"toy"}
    values = {key.name: {"dtype": key.dtype, "mask": key.mask} for key in keys[:1]}
    symbols = ["_Z1ToyKernelIfp16_noE1", "_Z1ToyKernelIfp16_noE2"]
    assert match_symbols(values, symbols, Path("here"), "gfx950", "toy") == {NAMES[0]: symbols}
    with pytest.raises(CodeObjectError, match=f"1 of 1 kernel symbols are {NAMES[0]}; 2 were planned"):
        match_symbols(values, symbols[:1], Path("here"), "gfx950", "toy")


def test_toy_s_kernels_get_cases_with_its_own_scenarios(toy: MatrixFamily) -> None:
    keys = manifests.record(*NAMES, dialect=DIALECT).keys()
    cases = kernel_cases.cases(keys, "*_mask")
    assert [case.name for case in cases] == [f"kernels/{name}" for name in NAMES[1::2]]
    assert [len(case.variants) for case in cases] == [2, 2]  # its one candidate, and the same with the checks


def test_family_without_line_in_table_is_unknown() -> None:
    with pytest.raises(NameSyntaxError, match=f"no family of {DIALECT} names kernels so"):
        family_of(dialect(DIALECT), NAMES[0])
    with pytest.raises(UsageError, match="toy of dialect ck-2025-11 can't be rendered"):
        library_of(["toy"], DIALECT)


def test_every_library_of_table_has_host_side() -> None:
    """A family whose name were misspelt would otherwise only be missed when somebody builds it."""
    assert {name: family.name for name, family in table.FAMILIES.items()} == {name: name for name in table.FAMILIES}
    for library, members in libraries().items():
        assert host(library).functions
        assert library in members
        for member in members:
            assert dialect(DIALECT).family(member).name == member
            assert environment().get_template(table.FAMILIES[member].instance)
            assert environment().get_template(table.FAMILIES[member].unit)


# ---- no code compares the name of a family

# Where names belong: modules of families, and matrix/'s rules, each a predicate with its own reason and source.
RULES = ("ckpm/matrix/rules.py", "ckpm/matrix/configurations/validation.py", "ckpm/matrix/configurations/tiles.py")
OF_FAMILIES = ("ckpm/kernels/families/", *RULES)
ROOMS = ("ckpm/kernels", "ckpm/matrix", "ckpm/reports", "emulator", "ckpm/suites")


def compared_with_a_name(text: str) -> Iterator[int]:
    """Lines where a family, called so or a library, is compared with text, or with a constant that stands for one."""
    for node in nodes(text):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names_family = any(re.search(r"\b(family|library)(_name)?$", ast.unparse(side)) for side in sides)
            equal = all(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
            parts = [part for side in sides for part in getattr(side, "elts", [side] if equal else [])]
            if names_family and any(map(_is_name, parts)):
                yield node.lineno


def _is_name(part: ast.expr) -> bool:
    if isinstance(part, ast.Constant):
        return isinstance(part.value, str) and part.value != ""
    return bool(re.fullmatch(r"(\w+\.)*_?[A-Z][A-Z0-9_]*", ast.unparse(part)))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("if key.family == 'fwd': pass", [1]),
        ("x = 1\nif 'fwd' != family: pass", [2]),
        ("[k for k in keys if k.family in ('fwd', NAME)]", [1]),
        ("library not in ['fwd']", [1]),
        ("key.family == _FWD_V3 or library == fwd.NAME", [1, 1]),
        ("key.family in FAMILIES and family in LIBRARIES", []),
        ("key.family == other.family or key.family in known or family == ''", []),
        ("key.dtype == 'fwd'", []),
    ],
)
def test_search_sees_comparisons(text: str, lines: list[int]) -> None:
    assert list(compared_with_a_name(text)) == lines


def test_no_family_is_asked_for_by_name_outside_its_module() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 150
    comparisons = [
        f"{name}:{line}"
        for file in files
        if not (name := file.relative_to(ROOT).as_posix()).startswith(OF_FAMILIES)
        for line in compared_with_a_name(file.read_text(encoding="utf-8"))
    ]
    assert comparisons == []


def test_every_pipeline_of_every_arch_has_cpp_words() -> None:
    """Fwd of 2026 has qr_hpad and qr_nwarp_sshuffle on gfx11 and gfx12 alone; their C++ names are upstream's."""
    texts: dict[str, str] = {}
    for name in dialect_names():
        families = (family for family in dialect(name).all_families() if family.name in table.FAMILIES)
        for family in (family for family in families if host(library_with(family.name)).renders(name)):
            for arch in family.archs:
                for key in {key.pipeline: key for key in keys_of(name, family.name, arch)}.values():
                    texts[key.pipeline] = instance_text(key, features(name))
    assert "ck_tile::BlockFmhaPipelineQRKSVSHpad<" in texts["qr_hpad"]
    assert "ck_tile::BlockFmhaFwdSplitKVPipelineNWarpSShuffleQRKSVS<" in texts["qr_nwarp_sshuffle"]
