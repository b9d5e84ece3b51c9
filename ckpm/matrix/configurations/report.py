"""Report on a configuration or a kernel: findings, and the kernels of the matrix that equal it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import ckpm.matrix.configurations.tiles  # registers its rules
import ckpm.matrix.rules
from ckpm.matrix.configurations.configuration import Configuration, configuration_of
from ckpm.matrix.configurations.validation import RULES
from ckpm.matrix.dialects import Dialect, check_arch, receipts
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.explain import Reason, find, outside, whole_name
from ckpm.matrix.families import MASK_IMPLS, Axis, Family
from ckpm.matrix.keys import KEY_FIELDS, Key, takes_pages
from ckpm.matrix.names import make_key, own_name
from ckpm.matrix.rule import broken


@dataclass(frozen=True, slots=True)
class Finding:
    """An objection of a rule or of the form to a configuration.

    ``severity`` is error, warning, or contradicted: the dispatcher's error about a kernel that CK's codegen lists.
    ``line`` is the file's, 0 for a kernel.
    """

    severity: str
    rule: str
    paths: tuple[str, ...]
    line: int
    text: str
    reason: str = ""
    source: str = ""
    contradiction: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the matrix that equals the judged configuration."""

    dialect: str
    name: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report on ``subject``, a file or a kernel's name. ``kernels`` are its equals in all dialects."""

    subject: str
    findings: tuple[Finding, ...]
    kernels: tuple[Kernel, ...]

    def count(self, severity: str) -> int:
        return sum(1 for finding in self.findings if finding.severity == severity)

    @property
    def valid(self) -> bool:
        return self.count("error") == 0

    def summary(self) -> str:
        """A summary such as ``2 errors, 1 warning``; ``valid`` without either."""
        counts = [(self.count(word), word) for word in ("error", "warning")]
        return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in counts if n) or "valid"

    def text(self) -> str:
        lines = [f"{self.subject}: {self.summary()}"]
        for finding in self.findings:
            location = f"{self.subject}:{finding.line}: " if finding.line else ""
            lines.append(f"{location}{finding.severity}: {', '.join(finding.paths)}: {finding.text}")
            lines.append(f"  {finding.rule}: {finding.reason}" if finding.reason else f"  {finding.rule}")
            lines += [f"  source: {finding.source}"] if finding.source else []
            lines += [f"  contradicted: {finding.contradiction}"] if finding.contradiction else []
        lines += [f"equals {kernel.name} of {kernel.dialect}" for kernel in self.kernels]
        return "\n".join(lines) + "\n"

    def record(self) -> dict[str, Any]:
        """The whole report as JSON contains it."""
        return {
            "subject": self.subject,
            "valid": self.valid,
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "findings": [asdict(finding) for finding in self.findings],
        }


def findings(configuration: Configuration) -> list[Finding]:
    """The mistakes of the form, then the findings of rules. A rule that needs a missing field is left out."""
    listed = [
        Finding(
            "error",
            mistake.kind,
            (mistake.path,),
            mistake.line,
            mistake.text,
            "the form of a configuration: ckpm.matrix.configurations.configuration",
        )
        for mistake in configuration.mistakes
    ]
    for rule, text in broken(RULES.values(), configuration.values).items():
        line = _line(configuration.lines, rule.paths)
        parts = (rule.reason, rule.source, rule.contradiction)
        listed.append(Finding(rule.severity, rule.name, rule.paths, line, str(text), *parts))
    return listed


def _line(lines: Mapping[str, int], paths: Sequence[str]) -> int:
    """The line of the first path that the file has, or of the section that lacks it."""
    for path in paths:
        for candidate in (path, path.partition("[")[0]):
            if candidate in lines:
                return lines[candidate]
    return lines.get(paths[0].rpartition(".")[0], lines.get("", 0))


def judge(subject: str, configuration: Configuration, dialects: Iterable[Dialect]) -> Report:
    """A report on a hand-written configuration; equal kernels are looked for in ``dialects``."""
    mistakes = findings(configuration)
    equal = (
        []
        if configuration.mistakes
        else [(dialect.name, key) for dialect in dialects for key in equals(dialect, configuration)]
    )
    # Objections that also hold for a kernel that CK lists are excused; num_wave_groups -3, for example, isn't.
    arch = configuration.values.get("arch", "")
    listed = {finding.rule for _, key in equal for finding in findings(configuration_of(key, arch))}
    kernels = tuple(Kernel(name, key.name) for name, key in equal)
    return Report(
        subject, tuple(_excuse(finding) if finding.rule in listed else finding for finding in mistakes), kernels
    )


def judge_kernel(chosen: Dialect, name: str, mask_impl: str, arch: str | None) -> Report:
    """A report on a kernel's name for ``arch`` (None: the last arch with its arch trait)."""
    name = whole_name(chosen, name, mask_impl)
    family, values = find(chosen, name, mask_impl)
    archs = [arch_name for arch_name, traits in family.archs.items() if values["arch_trait"] in traits]
    where = check_arch(arch).name if arch is not None else [*family.archs, *archs][-1]
    against = [_against(reason) for reason in outside(chosen, family, values)]
    if where not in archs:
        text = f"for {', '.join(archs) or 'no arch'}, not for {where}"
        reason = "" if where in family.archs else family.absent
        against.append(Finding("error", "arch", ("key.arch_trait",), 0, text, reason, f"dialect {chosen.name}"))
    mistakes = findings(configuration_of(make_key(family, values, own_name((family,), name)), where))
    if against:
        return Report(name, (*against, *mistakes), ())
    return Report(name, tuple(map(_excuse, mistakes)), (Kernel(chosen.name, name),))


def _excuse(finding: Finding) -> Finding:
    if finding.severity != "error":
        return finding
    return replace(finding, severity="contradicted", contradiction=finding.contradiction or "CK lists this kernel.")


def _against(reason: Reason) -> Finding:
    """A reason that keeps a name out of the matrix, as a finding with the fields of the key that it concerns."""
    if reason.kind == "rule":
        fields: Sequence[str] = ckpm.matrix.rules.RULES[reason.name].fields
    else:
        fields = (reason.name if reason.name in KEY_FIELDS else "tile" if reason.kind == "tile" else "pipeline",)
    rule = reason.name if reason.kind == "rule" else reason.kind
    return Finding("error", rule, tuple(f"key.{name}" for name in fields), 0, reason.text, "", reason.source)


# The numbers of tile, wave and warp, and the paddings, that decide a family's kernel. Other families have
# TileFmhaShape's numbers and all four paddings.
_SLOTS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "fwd_splitkv_combine": {"tile": (3,), "wave": (), "warp": (), "padding": (0, 3)},
    "fwd_appendkv": {"tile": range(4), "wave": (), "warp": (), "padding": range(4)},
    "bwd_dot_do_o": {"tile": (0,), "wave": (), "warp": (), "padding": (0, 3)},
    "bwd_dq_dk_dv": {"tile": range(9), "wave": range(9), "warp": range(6), "padding": (2, 3)},
    "bwd_convert_dq": {"tile": (0, 1), "wave": (), "warp": (), "padding": (0, 2)},
}
_ATTENTION_SLOTS = {"tile": range(6), "wave": range(6), "warp": range(6), "padding": range(4)}
# a pad of mid-2025, whose kernels pad all four
_PADS_ALL = {"bwd_dq_dk_dv": "pssk"}
_SIZED_PAGES = ("batch_prefill",)  # their kernels have one page size
_COMPARED = (
    *("dtype", "mode", "hdim_q", "hdim_v", "vlayout", "bias", "logits", "dropout", "qscale", "rope", "sink", "skip"),
    *("paged_kv", "pipeline", "block_per_cu"),
)
_AXES = ("dtype", "hdim_q", "hdim_v", "mode", "logits", "bias", "dropout", "sink")
_MASKS = {
    "no": ("no",),
    "top_left": ("causal", "mask"),
    "bottom_right": ("causal", "mask"),
    "generic": ("generic", "mask"),
}


def equals(chosen: Dialect, configuration: Configuration) -> list[Key]:
    """The kernels of a dialect, of any receipt and mask set, that a configuration without mistakes of form describes.

    There are several if kernels differ in fields that a configuration lacks (loads, deterministic dQ) or leaves out.
    """
    values = configuration.values
    if values["family"] not in chosen.families or values["arch"] not in chosen.families[values["family"]].archs:
        return []
    family = _narrow(chosen.families[values["family"]], values)
    keys: dict[str, Key] = {}
    for receipt, mask_impl in itertools.product(receipts() if family.tiles else (), MASK_IMPLS):
        for key in enumerate_keys(family, arch=values["arch"], receipt=receipt, mask_impl=mask_impl):
            if key.name not in keys and _equal(family, key, values):
                keys[key.name] = key
    return list(keys.values())


def _narrow(family: Family, wanted: Mapping[str, Any]) -> Family:
    """The family with the axis values and tiles that a configuration may mean, so that few kernels are compared."""
    meant: dict[str, Any] = {name: (wanted[name],) for name in _AXES} | {"mask": _MASKS[wanted["mask"]]}

    def narrow(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(
            replace(axis, values=tuple(step for step in axis.values if _fits(axis.fields, step, meant)))
            for axis in axes
        )

    traits = family.archs[wanted["arch"]]
    tile_keys = [(trait, wanted["dtype"], wanted["hdim_q"], wanted["hdim_v"]) for trait in traits]
    return replace(
        family,
        axes=narrow(family.axes),
        pipelines=tuple(replace(block, axes=narrow(block.axes)) for block in family.pipelines),
        tiles={tile_key: family.tiles[tile_key] for tile_key in tile_keys if tile_key in family.tiles},
    )


def _fits(fields: Sequence[str], step: Sequence[Any], meant: Mapping[str, Any]) -> bool:
    return all(value in meant.get(field, (value,)) for field, value in zip(fields, step, strict=True))


def _equal(family: Family, key: Key, wanted: Mapping[str, Any]) -> bool:
    has = configuration_of(key, wanted["arch"]).values
    same = (
        all(has[name] == wanted[name] for name in _COMPARED)
        and key.mask in ("", *_MASKS[wanted["mask"]])
        and (key.mask != "" or wanted["mask"] == "no")
        and ("lse" not in family.fields or has["lse"] == wanted["lse"])  # backward reads it, append-KV has none
        and (key.family not in _SIZED_PAGES or takes_pages(key.page_size, wanted["page_size"]))
        and all(wanted[name] in (None, has[name]) for name in ("kv_memory_layout", "kv_lookup_table"))
    )
    slots = {**_SLOTS.get(key.family, _ATTENTION_SLOTS)}
    if _PADS_ALL.get(key.family) in family.values("pad"):
        slots["padding"] = range(4)
    return same and all(_pick(has[name], slots[name]) == _pick(wanted[name], slots[name]) for name in slots)


def _pick(numbers: Sequence[Any], slots: Sequence[int]) -> list[Any]:
    return [numbers[index] if index < len(numbers) else None for index in slots]
