"""A small CK tree: the files that identify a checkout, and a generate.py whose instances agree with ours."""

from __future__ import annotations

import json
from pathlib import Path

from ckpm.kernels.families import spellings
from ckpm.kernels.families.render import dispatch_text, instance_text
from ckpm.kernels.upstream.tree import FMHA
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys

RECEIPT = 200  # with few kernels
_DIALECT = "ck-2025-11"
KNOWN = '''
K0_MAX_SUBMAX_MAP = {32: 32, 64: 64, 128: 128}
do_fp8_static_quant = get_mask_map = None


def list_blobs(targets, file_path):
    """Match the dialect's detection."""
'''
# newer than the newest dialect: commands read its headers and codegen
NEWEST = """
SUPPORTED_PAGE_SIZE = [1, 16, 1024]
LOADS = ["bload", "gload"]
TARGETS = ["gfx9", "gfx11"]
"""
_HEADER = """
#pragma once
#include "ck_tile/core.hpp"
enum class BlockAttentionBiasEnum { NO_BIAS = 0, ELEMENTWISE_BIAS = 1, ALIBI = 2, OTHER = 3 };
template <ck_tile::index_t HDim_, typename DataType_, bool kHasSink_ = false>
struct fmha_fwd_batch_prefill_traits_ {};
"""
_GENERATE = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for word in ("--api", "--receipt", "--mask", "--list_blobs", "--output_dir", "--targets"):
    parser.add_argument(word)
args = parser.parse_args()
texts = json.loads((pathlib.Path(__file__).parent / "instances.json").read_text())
if args.list_blobs:
    pathlib.Path(args.list_blobs).write_text("".join(name + ".cpp\\n" for name in texts))
else:
    for name, text in texts.items():
        (pathlib.Path(args.output_dir) / (name + ".cpp")).write_text(text)
"""
# The files that are read, and the commands. generate.py is a program of the user, so it is not fuzzed.
HEADER, CODEGEN, INSTANCES = (
    f"ck/{FMHA}/fmha_fwd.hpp",
    f"ck/{FMHA}/codegen/ops/fmha_batch_prefill.py",
    f"ck/{FMHA}/instances.json",
)
PARITY = (
    f"parity --upstream checkout --ck-root ck --family batch_prefill --arch gfx950 --receipt {RECEIPT} "
    "--mask simplified --no-machine-code --no-stored --output out.json"
)
# reads the tree, and compiles nothing
BUILD = "build --arch gfx950 --upstream checkout --ck-root ck --filter nothing"


def prepare_tree(folder: Path, codegen: str) -> None:
    """Write the tree with a text of the codegen into ``folder``/ck."""
    fmha = folder / "ck" / FMHA
    (fmha / "codegen/ops").mkdir(parents=True)
    (folder / "ck/include/ck_tile").mkdir(parents=True)
    (folder / "ck/include/ck_tile/core.hpp").write_text("// core\n")
    (fmha / "generate.py").write_text(_GENERATE)
    (fmha / "codegen/utils.py").write_text("")
    (folder / CODEGEN).write_text(codegen)
    (folder / HEADER).write_text(_HEADER)
    (folder / INSTANCES).write_text(json.dumps(_instances()))


def _instances() -> dict[str, str]:
    features = spellings.features(_DIALECT)
    family = dialect(_DIALECT).family("batch_prefill")
    keys = enumerate_keys(family, arch="gfx950", receipt=RECEIPT, mask_impl="simplified")
    texts = {key.name: instance_text(key, features, "theirs::n") for key in keys}
    return texts | {"fmha_batch_prefill_api": dispatch_text(keys, features).replace("ckpm", "theirs")}
