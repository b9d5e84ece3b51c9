"""The instructions of each arch as LLVM has them: every name in the embedded compiler that its assembler takes.

``python emulator/tests/isa_facts.py --write`` writes ckpm_emulator/lowering/isa.yaml: the differences from tinygrad's
tables. The names come from the compiler's own tables. A line with a name alone is always wrong. The assembler's message
shows if the arch has the instruction, and in which encodings.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from ckpm_emulator.inspection.isa import forms_of_tables, table_name
from ckpm_emulator.lowering.arch_table import FACTS
from programs.clang import zig, zig_environment

ARCHS = ("gfx90a", "gfx942", "gfx950")
FORMS = ("e32", "e64", "sdwa", "dpp")
_NAME = re.compile(rb"(?<![a-z0-9_.])(?:s|v|ds|flat|global|scratch|buffer|tbuffer)_[a-z0-9_]+(?![A-Za-z0-9_.])")
_REFUSED = ("invalid instruction", "not supported on this GPU", "variant of this instruction is not supported")
_SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp|e64_dpp)$")
_HEAD = """\
# Where LLVM's assembler differs from tinygrad's tables, by arch: the encodings that it takes of an instruction, or null
# if it takes none. Of {llvm}.
# Made by python emulator/tests/isa_facts.py --write; a test compares it with the assembler.
"""


def known_names(compiler: Path) -> set[str]:
    """Mnemonics in the compiler's tables, without suffixes that choose an encoding."""
    names = {match.decode() for match in _NAME.findall(compiler.read_bytes())}
    return {_SUFFIX.sub("", name) for name in names}


def taken(names: Iterable[str], arch: str) -> set[str]:
    """The names of which the assembler misses nothing but operands."""
    listed = sorted(names)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "names.s")
        source.write_text("".join(f"{name}\n" for name in listed))
        target = ("-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-ferror-limit=0", "-c")
        command = [zig(), "clang", *target, str(source), "-o", str(Path(folder, "names.o"))]
        messages = subprocess.run(command, env=zig_environment(), capture_output=True, text=True, check=False).stderr
    refused = {
        listed[int(line) - 1]
        for line, message in re.findall(r":(\d+):\d+: error: (.*)", messages)
        if any(refusal in message for refusal in _REFUSED)
    }
    return set(listed) - refused


def facts() -> dict[str, dict[str, frozenset[str]]]:
    """The forms of each instruction, by arch; instructions with one encoding have no form."""
    names = known_names(Path(zig()))
    forms_by_arch: dict[str, dict[str, frozenset[str]]] = {}
    for arch in ARCHS:
        plain = taken(names, arch)
        forms = taken((f"{name}_{form}" for name in names for form in FORMS if name.startswith("v_")), arch)
        of_name: dict[str, set[str]] = defaultdict(set)
        for name in forms:
            base, form = name.rsplit("_", 1)
            of_name[base].add(form)
        forms_by_arch[arch] = {name: frozenset(of_name.get(name, ())) for name in sorted(plain | of_name.keys())}
    return forms_by_arch


def as_yaml(forms_by_arch: Mapping[str, Mapping[str, frozenset[str]]]) -> str:
    """The differences from tinygrad's tables, as groups of names that the same archs have in the same forms."""
    table, differences = forms_of_tables(), dict[str, dict[str, list[str]]]()
    for arch in ARCHS:
        by_name = ((table_name(name), forms) for name, forms in forms_by_arch[arch].items())
        taken_forms = {name: forms for name, forms in by_name if name}
        for name in table.keys() | taken_forms.keys():
            forms = taken_forms.get(name)
            if forms != table.get(name) and (forms is None or table.get(name) != frozenset()):
                shown = "null" if forms is None else f"[{', '.join(form for form in FORMS if form in forms)}]"
                differences.setdefault(name, {}).setdefault(shown, []).append(arch)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, by_forms in sorted(differences.items()):
        for shown, archs in by_forms.items():
            groups[", ".join(archs), shown].append(name)
    lines = [_HEAD.format(llvm=f"ziglang {version('ziglang')}").rstrip()]
    for (archs_of_group, shown), names in sorted(groups.items()):
        lines.append(f"- archs: [{archs_of_group}]")
        lines.append(f"  forms: {shown}")
        lines.append("  names: >-")
        lines += textwrap.wrap(" ".join(names), 116, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = as_yaml(facts())
    if "--write" in sys.argv[1:]:
        FACTS.write_text(text)
    else:
        print(text, end="")
