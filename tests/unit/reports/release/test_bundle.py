"""A bundle is verified to the byte: whatever is changed, added, renamed or removed is an error that names it."""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ckpm.base.errors import CheckFailedError, CkPrefillError, OutputError, SetupError, TrustError
from ckpm.matrix.sessions import SESSIONS
from ckpm.reports.release.run import Checkout, source_uri
from ckpm.reports.release.sbom import direct_dependencies, find_needed, license_of, pins
from ckpm.reports.release.stages import STAGES, StageStep
from ckpm.reports.release.verify import describe, rebuild, verify
from tests.unit.reports.release.samples import (
    CODE,
    DEFECT,
    EPOCH,
    FACTS,
    ROOT,
    Stages,
    copy_of,
    make_bundle,
    make_key,
    names_in,
    update_sums,
)
from tests.unit.shared import git, replace_text

NAMES = (
    [f"records/gfx950/{name}.json" for name in ("build", "reproduce", "gated-build", "gates")]
    + [f"records/gfx950/{name}.json" for name in ("batch-prefill", "large-kv", "page-fault", "dispatch", "sanitize")]
    + [f"records/project/{name}.json" for name in ("image", "parity", "report")]
    + [f"results/gfx950/aiter/{name}.json" for name in ("batch-prefill", "large-kv", "page-fault", "dispatch")]
    + ["results/gfx950/aiter/sanitize.json", "results/gfx950/aiter/gates.json", "results/parity.json"]
    + [f"junit/gfx950/aiter/{name}.xml" for name in ("batch-prefill", "large-kv", "page-fault", "dispatch")]
    + ["junit/gfx950/aiter/sanitize.xml", "junit/gfx950/aiter/gates.xml", "junit/parity.xml"]
    + ["libraries/gfx950/aiter/libckpm.so", "libraries/gfx950/aiter/manifest.json"]
    + ["report/report.html", "stages.yaml", "ledger.yaml", "waivers.yaml", "requirements.txt", "verdict.json"]
    + ["sbom.cdx.json", "provenance.intoto.json", "provenance.intoto.jsonl", "SHA256SUMS", "SHA256SUMS.sig"]
)


def signers(key: Path) -> Path:
    return key.with_suffix(".signers")


def test_bundle_holds_what_release_promises_and_nothing_else(signed: tuple[Path, Path]) -> None:
    assert names_in(signed[0]) == sorted(NAMES)


def test_good_bundle_is_in_order(signed: tuple[Path, Path], key: Path) -> None:
    verified = verify(signed[0], signers(key))
    assert verified.verdict.text == "passed with 1 waived defect"
    assert verified.signer == "key@example.org"
    assert any("waived: table-read-past-end, by A Person until 2099-12-31" in line for line in describe(verified))
    assert verify(signed[0], None).signer == ""


def test_sha256sum_reads_checksums(signed: tuple[Path, Path]) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=signed[0], check=True)


def test_same_release_twice_gives_same_bytes(signed: tuple[Path, Path], key: Path, tmp_path: Path) -> None:
    folder, tar = make_bundle(tmp_path / "elsewhere", key=key)
    assert tar.read_bytes() == signed[1].read_bytes()
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == {
        name: (signed[0] / name).read_bytes() for name in names_in(signed[0])
    }


@pytest.mark.parametrize("name", NAMES)
def test_one_flipped_byte_in_any_file_is_found(signed: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    folder = copy_of(signed[0], tmp_path)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(CkPrefillError) as error:
        verify(folder, None)
    assert name in str(error.value)
    assert error.value.exit_code in (3, 8, 9, 11)


def test_every_byte_of_signature_counts(signed: tuple[Path, Path], tmp_path: Path) -> None:
    """Also those that readers of base64 overlook, such as line ends."""
    folder = copy_of(signed[0], tmp_path)
    file = folder / "SHA256SUMS.sig"
    good = file.read_bytes()
    for at in [*range(0, len(good), 23), *range(len(good) - 40, len(good))]:
        file.write_bytes(good[:at] + bytes([good[at] ^ 2]) + good[at + 1 :])
        with pytest.raises(TrustError, match=r"SHA256SUMS\.sig"):
            verify(folder, None)
    for changed in (good + b"\n", good.replace(b"\n", b"\r\n"), good[:-1]):
        file.write_bytes(changed)
        with pytest.raises(TrustError, match=r"SHA256SUMS\.sig"):
            verify(folder, None)


def test_added_and_renamed_files_are_named(signed: tuple[Path, Path], tmp_path: Path) -> None:
    folder = copy_of(signed[0], tmp_path)
    (folder / "results/extra.json").write_text("{}")
    with pytest.raises(TrustError, match=r"results/extra\.json: not listed"):
        verify(folder, None)
    (folder / "results/extra.json").unlink()
    (folder / "results/parity.json").rename(folder / "results/parity2.json")
    with pytest.raises(TrustError, match=r"results/parity\.json: missing.*\n.*results/parity2\.json: not listed"):
        verify(folder, None)


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (lambda folder: (folder / "results/extra.json").write_text("{}"), TrustError,
         r"files that no stage made: results/extra\.json"),
        (lambda folder: (folder / "waivers.yaml").unlink(), CheckFailedError, rf"{DEFECT} \(1\): not accepted"),
    ],
)  # fmt: skip
def test_other_files_with_fitting_checksums_are_refused(
    unsigned: tuple[Path, Path], tmp_path: Path, change: Any, error: type[Exception], complaint: str
) -> None:
    folder = copy_of(unsigned[0], tmp_path)
    change(folder)
    update_sums(folder)
    with pytest.raises(error, match=complaint):
        verify(folder, None)


@pytest.mark.parametrize("kind", ["link", "folder-link", "pipe", "case", "empty"])
def test_what_is_not_plain_file_is_refused(unsigned: tuple[Path, Path], tmp_path: Path, kind: str) -> None:
    folder = copy_of(unsigned[0], tmp_path)
    match kind:
        case "link":
            (folder / "verdict.json").rename(tmp_path / "verdict.json")
            (folder / "verdict.json").symlink_to(tmp_path / "verdict.json")
        case "folder-link":
            (folder / "junit").rename(tmp_path / "junit")
            (folder / "junit").symlink_to(tmp_path / "junit")
        case "pipe":
            subprocess.run(["mkfifo", str(folder / "pipe")], check=True)
        case "case":
            (folder / "Verdict.json").write_text("{}")
        case "empty":
            (folder / "nothing").mkdir()
    with pytest.raises(TrustError):
        verify(folder, None)


def test_only_who_may_sign_is_believed(signed: tuple[Path, Path], unsigned: tuple[Path, Path], tmp_path: Path) -> None:
    other = make_key(tmp_path, "other")
    with pytest.raises(TrustError, match=r"SHA256SUMS\.sig"):
        verify(signed[0], signers(other))
    with pytest.raises(TrustError, match=r"SHA256SUMS\.sig: missing: the bundle is not signed"):
        verify(unsigned[0], signers(other))
    with pytest.raises(TrustError, match=r"no such file of allowed signers"):
        verify(signed[0], tmp_path / "missing")
    folder = copy_of(signed[0], tmp_path)
    (folder / "SHA256SUMS.sig").unlink()
    with pytest.raises(TrustError, match=r"missing: verdict\.json has it as signed"):
        verify(folder, None)


def test_signature_or_key_of_another_purpose_is_refused(signed: tuple[Path, Path], key: Path, tmp_path: Path) -> None:
    folder = copy_of(signed[0], tmp_path)
    (folder / "SHA256SUMS.sig").unlink()
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", "git", str(folder / "SHA256SUMS")]
    subprocess.run(command, check=True)
    for allowed in (signers(key), None):
        with pytest.raises(TrustError):
            verify(folder, allowed)
    signers_of_git = tmp_path / "signers"
    signers_of_git.write_text(signers(key).read_text().replace("ckpm-release", "git"))
    with pytest.raises(TrustError):
        verify(signed[0], signers_of_git)


def edit(folder: Path, name: str, change: Callable[[Any], object]) -> None:
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    update_sums(folder)


LIBRARY = "libraries/gfx950/aiter/libckpm.so"


def without_library(document: Any) -> None:
    document["components"] = [part for part in document["components"] if part["name"] != LIBRARY]


def wrong_subject(document: Any) -> None:
    next(subject for subject in document["subject"] if subject["name"] == LIBRARY)["digest"]["sha256"] = "0" * 64


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("sbom.cdx.json", without_library, rf"{LIBRARY}: not listed"),
        ("sbom.cdx.json", lambda d: d.pop("components"), r"sbom\.cdx\.json: components: is missing"),
        ("provenance.intoto.json", wrong_subject, rf"{LIBRARY}: its subject has sha256 0000"),
        ("provenance.intoto.json", lambda d: d["subject"].pop(), r"its subject has sha256 none"),
        (
            "provenance.intoto.json",
            lambda d: d["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"].update(gitCommit="c" * 40),
            r"provenance\.intoto\.json: contradicts verdict",
        ),
        ("verdict.json", lambda d: d.update(verdict="passed"), r"verdict\.json: contradicts"),
        ("verdict.json", lambda d: d.update(commit="--help"), "is not the full name of a "),
        ("verdict.json", lambda d: d.update(commit="c" * 40), r"build\.json: of another release"),
        ("results/parity.json", lambda d: d["cases"].pop(), r"parity\.json: not the file"),
    ],
)
def test_contradictory_files_are_refused(
    unsigned: tuple[Path, Path], tmp_path: Path, name: str, change: Any, complaint: str
) -> None:
    """Fit the checksums to an unsigned bundle: the rest of the bundle still contradicts the change."""
    folder = copy_of(unsigned[0], tmp_path)
    edit(folder, name, change)
    with pytest.raises(TrustError, match=complaint):
        verify(folder, None)


def test_sbom_names_what_libraries_are_made_of(signed: tuple[Path, Path]) -> None:
    document = json.loads((signed[0] / "sbom.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["timestamp"].startswith("2023-11-14T22:13:20")  # EPOCH
    parts = {part.get("purl", part["name"]): part for part in document["components"]}
    (clang,) = (part for part in document["components"] if part["name"] == "embedded clang")
    assert (clang["version"], clang["hashes"][0]["content"]) == ("22", "e" * 64)
    assert parts["pkg:pypi/amd-aiter@0.1.7"]["licenses"] == [{"license": {"id": "MIT"}}]
    zig = parts["pkg:pypi/ziglang@0.17.0"]
    assert [digest["content"] for digest in zig["hashes"]] == ["0" * 64, "1" * 64]
    assert document["metadata"]["component"]["licenses"] == [{"license": {"id": "MIT"}}]


def test_sbom_keeps_development_tools_apart(signed: tuple[Path, Path]) -> None:
    document = json.loads((signed[0] / "sbom.cdx.json").read_text())
    scopes = {part["name"]: part.get("scope") for part in document["components"] if "pypi" in part.get("purl", "")}
    wanted = {"ziglang", "jinja2", "markupsafe"}
    assert {name for name, scope in scopes.items() if scope == "required"} == wanted
    assert {name for name, scope in scopes.items() if scope == "excluded"} == {"pytest"}
    (root,) = (dependency for dependency in document["dependencies"] if dependency["ref"] == signed[0].name)
    assert not any("pytest" in ref for ref in root["dependsOn"])


def test_sbom_has_license_of_every_package_here() -> None:
    """pyproject.toml and requirements.txt, of which this environment is made."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["license"] == "MIT"  # the license of the bundle
    pinned = pins((ROOT / "requirements.txt").read_text())
    needed = find_needed(pinned, direct_dependencies(ROOT / "pyproject.toml"))
    assert {"ziglang", "numpy", "markupsafe"} <= needed
    assert not {"ruff", "mypy", "pytest", "nox", "hypothesis"} & needed
    assert all(pin.hashes for pin in pinned)
    assert [pin.name for pin in pinned if pin.name in needed and not license_of(pin.name, pin.version)] == []
    assert license_of("ziglang", "0.0.1") == license_of("no-such-package", "1") == ""


def test_provenance_names_its_materials(signed: tuple[Path, Path]) -> None:
    document = json.loads((signed[0] / "provenance.intoto.json").read_text())
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://slsa.dev/provenance/v1"
    digests = [material["digest"] for material in document["predicate"]["buildDefinition"]["resolvedDependencies"]]
    assert {"gitCommit": FACTS.commit} in digests
    assert {"sha256": "b" * 64} in digests
    assert {"sha256": "e" * 64} in digests
    materials = document["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert materials[0]["uri"] == f"git+https://example.org/ckpm@{FACTS.commit}"
    assert document["predicate"]["runDetails"]["metadata"]["invocationId"].startswith("urn:uuid:")


@pytest.mark.parametrize(
    ("origin", "uri"),
    [
        ("https://example.org/a/b", "git+https://example.org/a/b"),
        ("https://user:token@example.org:8443/a/b.git", "git+https://example.org:8443/a/b.git"),
        ("git@example.org:a/b.git", "git+https://example.org/a/b.git"),
        ("ssh://git@example.org:22/a/b", "git+https://example.org/a/b"),
        ("/srv/git/b", ""),
        ("../b", ""),
        ("file:///srv/git/b", ""),
        ("", ""),
    ],
)
def test_source_uri_has_no_credentials_or_folder(origin: str, uri: str) -> None:
    assert source_uri(origin) == uri


def test_envelope_is_signed_as_dsse_demands(tmp_path: Path) -> None:
    """The signature is of DSSE's pre-authentication encoding, which openssl checks with the public key."""
    key = make_key(tmp_path / "keys", "pem", "-t", "rsa", "-m", "PKCS8")
    folder, _ = make_bundle(tmp_path, key=key)
    assert verify(folder, signers(key)).signer
    envelope = json.loads((folder / "provenance.intoto.jsonl").read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    payload = base64.b64decode(envelope["payload"])
    assert payload == (folder / "provenance.intoto.json").read_bytes()
    (signature,) = envelope["signatures"]
    (tmp_path / "sig").write_bytes(base64.b64decode(signature["sig"]))
    (tmp_path / "signed").write_bytes(b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload)
    for command in (
        ["openssl", "pkey", "-in", str(key), "-pubout", "-out", "public.pem"],
        ["openssl", "dgst", "-sha256", "-verify", "public.pem", "-signature", "sig", "signed"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def test_envelope_of_openssh_key_has_no_signature(signed: tuple[Path, Path]) -> None:
    assert json.loads((signed[0] / "provenance.intoto.jsonl").read_text())["signatures"] == []


def drop_stages(folder: Path, *names: str) -> None:
    """Rewrite a bundle as one whose table never had these stages; every other file fits."""
    text = yaml.safe_load((folder / "stages.yaml").read_text())
    for name in names:
        del text["stages"][name]
    for stage in text["stages"].values():
        stage["needs"] = [need for need in stage.get("needs", []) if need not in names]
    (folder / "stages.yaml").write_text(yaml.safe_dump(text, sort_keys=False))
    update_sums(folder)


def test_table_without_stages_of_commit_is_refused(unsigned: tuple[Path, Path], tmp_path: Path) -> None:
    folder = copy_of(unsigned[0], tmp_path)
    drop_stages(folder, "reproduce", "parity", "sanitize")
    with pytest.raises(TrustError, match=r"stages\.yaml: not the stages of this ckpm") as error:
        verify(folder, None)
    assert "missing: parity, reproduce, sanitize\n" in str(error.value)
    assert "other commands, needs or outputs: report" in str(error.value)


def test_table_is_compared_with_that_of_its_commit(unsigned: tuple[Path, Path], tmp_path: Path) -> None:
    """The clone's commit lists one stage and one suite more than this ckpm."""
    clone = tmp_path / "clone"
    stages, suites = clone / "reports/release/stages.yaml", clone / "matrix/sessions.json"
    for file in (stages, suites):
        file.parent.mkdir(parents=True)
    stages.write_text(STAGES.read_text() + "  audit:\n    command: [audit]\n")
    suites.write_text(
        replace_text(SESSIONS.read_text(), '"large-kv": {', '"rare": {"session": "s", "help": ""}, "large-kv": {')
    )
    git(clone, "init", "-q")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "x")
    head = git(clone, "rev-parse", "HEAD")
    assert verify(unsigned[0], None, clone).signer is None  # made of a commit that the clone lacks
    folder = copy_of(unsigned[0], tmp_path)
    edit(folder, "verdict.json", lambda document: document.update(commit=head))
    with pytest.raises(TrustError, match=rf"not the stages of commit {head}:\n  missing: audit, rare"):
        verify(folder, None, clone)


def test_arch_of_table_that_is_left_out_is_named(unsigned: tuple[Path, Path]) -> None:
    assert "without: gfx942, of the table of stages" in describe(verify(unsigned[0], None))


def build_of(*code: bytes) -> Callable[[StageStep, Path, int], int]:
    def build(step: StageStep, work: Path, epoch: int) -> int:
        assert step.command[-1] == "--no-cache"
        return Stages(code=code)(step, work, epoch)

    return build


CHECKOUT = Checkout(root=Path("clone"), commit=FACTS.commit, epoch=EPOCH)


def test_rebuild_of_the_commit_compares_every_byte(signed: tuple[Path, Path]) -> None:
    verified = verify(signed[0], None)
    assert rebuild(verified, CHECKOUT, build_of(*CODE)) == 2
    with pytest.raises(CheckFailedError, match=r"libckpm\.so: differs.*\n.*manifest\.json: "):
        rebuild(verified, CHECKOUT, build_of(CODE[0], b"other"))
    with pytest.raises(SetupError, match=r"clone is at cccc"):
        rebuild(verified, dataclasses.replace(CHECKOUT, commit="c" * 40), build_of(*CODE))


def test_earlier_bundle_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    folder, tar = make_bundle(tmp_path)
    first = tar.read_bytes()
    assert make_bundle(tmp_path)[1].read_bytes() == first
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "mine").write_text("precious")
    with pytest.raises(OutputError, match=r"in the way, and not a bundle"):
        make_bundle(tmp_path)
    assert (folder / "mine").read_text() == "precious"


def test_bundle_that_cannot_be_signed_leaves_earlier_one(tmp_path: Path) -> None:
    folder, _ = make_bundle(tmp_path)
    (tmp_path / "key").write_text("no key")
    for key, message in (("key", "ssh-keygen refuses"), ("nothing", "no such key")):
        with pytest.raises(TrustError, match=message):
            make_bundle(tmp_path, key=tmp_path / key)
    assert verify(folder, None).signer is None
    assert len(list((tmp_path / "release").iterdir())) == 2  # folder and tar


def test_interrupted_bundle_leaves_nothing(
    signed: tuple[Path, Path], key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ckpm.reports.release.statements.provenance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make_bundle(tmp_path, key=key)
    assert list((tmp_path / "release").iterdir()) == []
    assert make_bundle(tmp_path, key=key)[1].read_bytes() == signed[1].read_bytes()
