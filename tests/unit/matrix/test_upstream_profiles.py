"""`--upstream ckpm --profile v3` is `--upstream ckpm-v3` in every command that a session runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ckpm.base.errors import UnknownWordError, UsageError
from ckpm.commands import parse
from ckpm.matrix import options
from ckpm.matrix.dialects import read_upstreams
from ckpm.matrix.options import upstream_profiles, variant
from ckpm.matrix.selection import profiles
from tests.mutants import __main__ as mutants_cli
from tests.unit.shared import table_complaint

Parse = Callable[[Sequence[str]], argparse.Namespace]
COMMANDS: list[tuple[Parse, tuple[str, ...]]] = [
    (parse, ("list",)),
    (parse, ("count",)),
    (parse, ("build",)),
    (parse, ("measure", "--output", "build/counters.json")),
    (parse, ("gate",)),
    (parse, ("accept", "--reason", "why")),
    (parse, ("test", "--suite", "batch-prefill")),
    (lambda arguments: mutants_cli.parser().parse_args(arguments), ()),
]
commands = pytest.mark.parametrize(("command", "arguments"), COMMANDS)


@commands
@pytest.mark.parametrize(
    ("profile", "upstream"), [("v3", "ckpm-v3"), ("extended", "ckpm-extended"), ("serving", "ckpm-serving")]
)
def test_profile_of_ckpm_is_upstream_in_every_command(
    command: Parse, arguments: tuple[str, ...], profile: str, upstream: str
) -> None:
    profile_options = command([*arguments, "--upstream", "ckpm", "--profile", profile])
    upstream_options = command([*arguments, "--upstream", upstream])
    assert {**vars(profile_options), "run": None} == {**vars(upstream_options), "run": None}


@commands
def test_upstream_without_such_profile_is_refused(command: Parse, arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        command([*arguments, "--upstream", "flash-attn", "--profile", "v3"])
    assert str(caught.value) == "--profile v3: upstream flash-attn has no such profile. Ask for --upstream ckpm."
    with pytest.raises(UnknownWordError):
        command([*arguments, "--upstream", "ckmp", "--profile", "v3"])


def test_profile_narrows_builds_and_is_refused_for_libraries() -> None:
    build_options = parse(["build", "--upstream", "ckpm", "--profile", "aiter_group"])
    assert (build_options.upstream, build_options.profile) == ("ckpm", "aiter_group")
    suite = ("test", "--suite", "batch-prefill", "--upstream")
    with pytest.raises(UsageError, match=r"--profile aiter_group narrows what is built or listed; leave it out"):
        parse([*suite, "ckpm", "--profile", "aiter_group"])
    with pytest.raises(UnknownWordError, match=r"unknown profile 'v4'.* Known: v3, extended, serving"):
        parse([*suite, "ckpm", "--profile", "v4"])
    with pytest.raises(UsageError, match="--profile v4: upstream aiter has no profiles"):
        parse([*suite, "aiter", "--profile", "v4"])


def test_upstream_profiles_of_ckpm_are_three() -> None:
    assert upstream_profiles() == {"ckpm": {"v3": "ckpm-v3", "extended": "ckpm-extended", "serving": "ckpm-serving"}}
    assert variant("ckpm", "all") is None
    assert not set(upstream_profiles()["ckpm"]) & set(profiles())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("ckmp: {v3: ckpm-v3}", "3: profiles.ckmp: is not an upstream of this table"),
        ("ckpm: {v3: ckpm-v4}", "3: profiles.ckpm.v3: 'ckpm-v4' is not an upstream of this table"),
        ("ckpm: {all: ckpm-v3}", "3: profiles.ckpm.all: is also a profile of selections.yaml"),
    ],
)
def test_malformed_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, message: str) -> None:
    monkeypatch.setattr(options, "TABLES", tmp_path)
    text = f"upstreams: {{}}\nprofiles:\n  {row}\n"
    complaint = table_complaint(tmp_path / "upstreams.yaml", text, lambda _: upstream_profiles.__wrapped__())
    assert complaint.startswith(message)


@pytest.mark.parametrize(
    ("fields", "beginning", "suggestion"),
    [(["dialect: ck-2025-12"], "dialect: unknown 'ck-2025-12'; known: ck-2025-06, ", "ck-2025-11")],
)
def test_unknown_word_of_upstream_is_refused_in_its_line(
    tmp_path: Path, fields: list[str], beginning: str, suggestion: str
) -> None:
    row = "\n".join(f"    {field}" for field in ("summary: CK", *fields))
    text = f"upstreams:\n  aiter:\n{row}\nprofiles: {{}}\n"
    complaint = table_complaint(tmp_path / "upstreams.yaml", text, read_upstreams)
    assert complaint.startswith(f"{3 + len(fields)}: upstreams.aiter.{beginning}")
    assert complaint.endswith(f"; did you mean '{suggestion}'?")


@pytest.mark.parametrize("sha256", ["fe139d74", "z" * 64, "FE139D74" * 8, "fe139d74" * 8 + "f", '""'])
def test_sha256_that_is_not_64_hex_digits_is_refused(tmp_path: Path, sha256: str) -> None:
    text = f"upstreams:\n  aiter:\n    summary: CK\n    dialect: ck-2025-11\n    sha256: {sha256}\nprofiles: {{}}\n"
    complaint = table_complaint(tmp_path / "upstreams.yaml", text, read_upstreams)
    assert complaint.startswith("5: upstreams.aiter.sha256: must be text matching regex '^[0-9a-f]{64}$'")
