"""C++: compile the kernel that prefill.cpp declares and the program that launches it, then compare O."""

import sys
import tempfile
from pathlib import Path

import numpy as np

from ckpm import Problem
from ckpm.attention import reference
from ckpm.attention.cpp.declared import declarations, kernels_of
from ckpm.attention.cpp.running import build_program, run_program
from ckpm.attention.jit.compiling import compile_keys
from ckpm.attention.launch.device import choose
from ckpm.attention.launch.encodings import decode, encode
from ckpm.base import settings
from ckpm.base.rocm_choice import default_device, default_toolchain
from ckpm.kernels.code.toolchains import detect
from examples import results
from examples.kernels import ARCH

SOURCE = Path(__file__).parent / "prefill.cpp"
(declared,) = declarations(SOURCE)
keys = kernels_of(declared, ARCH)
print(f"{declared.name} declares {len(keys)} kernel of {declared.upstream}", flush=True)
(library,) = compile_keys(keys, ARCH, declared.upstream)

random = np.random.default_rng(13)
q, k, v = (results.numbers(random, tokens, 1, 128) for tokens in (1, 37, 37))
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "numbers")
    file.write_bytes(b"".join(encode(array, "bf16", ARCH).tobytes() for array in (q, k, v)))
    toolchain = detect(default_toolchain(), cache=settings.cache_folder())
    program = build_program(SOURCE, Path(folder, "program.so"), toolchain)
    if code := run_program(program, choose(default_device(), ARCH), [str(library), str(file)]):
        sys.exit(code)
    written = np.frombuffer(file.read_bytes(), np.uint16)[-128:].reshape(1, 1, 128)
# prefill.cpp's page table lists the pages in reverse
problem = Problem(family="batch_prefill", dtype="bf16", mode="group", seqlen_q=1, seqlen_k=37, nhead_q=1, nhead_k=1)
o, _ = reference.attention(problem, [q], [k[::-1]], [v[::-1]])
results.check("O", decode(written, "bf16", ARCH), o)
