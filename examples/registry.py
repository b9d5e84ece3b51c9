"""A registry: kernels by declaration with wildcards, as JSON and back, priorities, and what it refuses."""

import tempfile
from pathlib import Path

from ckpm import Dispatcher, ProblemBuilder, Registry, kernel_set
from ckpm.attention.jit.on_demand import on_demand
from ckpm.attention.launch.device import choose
from ckpm.base.errors import LibraryError
from ckpm.base.rocm_choice import default_device
from examples.kernels import ARCH

tiles = [{"bm0": 64}, {"bm0": 128}]
registry = Registry()
for tile in tiles:
    registry.add(kernel_set("batch_prefill", dtype="bf16", mode="group", mask="*", lse=(True, False), tile=tile))
print(f"{len(registry)} kernels declared")
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "registry.json")
    registry.write(file)
    again = Registry.read(file)
    print(f"{len(again)} read back from {file.name}")

problem = (
    ProblemBuilder().family("batch_prefill").dtype("bf16").group(2, 60).lengths(40, 70, ragged=True).heads(4, 2)
    .hdims(128).mask("bottom_right", right=0).pages(1, 95).page_table("sglang").build()
)  # fmt: skip
dispatcher = Dispatcher(again, choose(default_device(), ARCH), order="first-fit", compile=on_demand())
before = dispatcher.why(problem).choice
assert before is not None
(first,) = before.stages
print("first  ", first.name)
serves = [instance for instance, reason in dispatcher.why(problem).refused.items() if reason.startswith("it serves")]
again.set_priority([serves[-1].name], 1)
after = dispatcher.why(problem).choice
assert after is not None
print("raised ", after.stages[0].name)
for reason in sorted({reason for instance, reason in dispatcher.why(problem).refused.items()}):
    print("not    ", reason)

for wrong in (lambda: again.add([first]), lambda: kernel_set("fwd", dtype="bf17")):
    try:
        wrong()
    except LibraryError as error:
        print(f"refused {type(error).__name__}")
    else:
        raise SystemExit(1)
if len(again) != len(registry) or after.stages[0] == first:
    raise SystemExit(1)
