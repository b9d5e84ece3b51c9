"""C++: what prefill.cpp declares is compiled on demand, then the program, which launches it; O is compared here."""

import sys
import tempfile
from pathlib import Path

import numpy as np

from dispatcher import Problem, reference
from dispatcher.cpp.declared import declarations, kernels_of
from dispatcher.cpp.running import build_program, run_program
from dispatcher.jit.compiling import compile_keys
from examples import results
from examples.kernels import ARCH
from kernels.base import settings
from kernels.code.toolchains import detect
from kernels.launch.device import choose
from kernels.launch.encodings import decode, encode

SOURCE = Path(__file__).parent / "prefill.cpp"
(declared,) = declarations(SOURCE)
keys = kernels_of(declared, ARCH)
print(f"{declared.name} declares {len(keys)} kernel of {declared.upstream}", flush=True)
(library,) = compile_keys(keys, ARCH, declared.upstream)

random = np.random.default_rng(13)
q, k, v = (results.numbers(random, tokens, 1, 128) for tokens in (1, 37, 37))
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "numbers")
    file.write_bytes(b"".join(encode(one, "bf16", ARCH).tobytes() for one in (q, k, v)))
    program = build_program(SOURCE, Path(folder, "program.so"), detect("auto", cache=settings.cache_folder()))
    if code := run_program(program, choose("auto", ARCH), [str(library), str(file)]):
        sys.exit(code)
    written = np.frombuffer(file.read_bytes(), np.uint16)[-128:].reshape(1, 1, 128)
problem = Problem(family="batch_prefill", dtype="bf16", mode="group", seqlen_q=1, seqlen_k=37, nhead_q=1, nhead_k=1)
o, _ = reference.attention(problem, [q], [k[::-1]], [v[::-1]])
results.check("O", decode(written, "bf16", ARCH), o)
