"""Checkouts of mixed states: files of May and of September together. Their codegens list upstream's stored names.

Upstream's files come at different dates. Each state is identified by its files' words, served as a combination, and its
names are those that its own codegen lists.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from ckpm.kernels.upstream.codegen_runner import difference_from_dialect
from ckpm.kernels.upstream.tree import FMHA
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import APIS
from ckpm.matrix.published import stored_lists
from tests.unit.kernels.test_upstream import write_features

MAY, SEPTEMBER = "rocm-libraries-2026", "rocm-libraries-2026-09"
# The features of a file, and the API whose names they change: "" for none.
FILES = {
    "fmha_batch_prefill.py": (("few_compute_units",), "batch_prefill"),
    "fmha_bwd.py": (("bwd_for_transformer_engine", "short_q_groups"), "bwd"),
    "fmha_fwd.hpp": (("occupancy_in_traits",), ""),
    "fmha_fwd.py": (("head_dim_512",), "fwd"),
}
RECEIPTS = (0, 2, 700)
STATES = [names for count in range(len(FILES) + 1) for names in itertools.combinations(FILES, count)]


def lists_of(api: str, version: str) -> dict[str, list[str]]:
    """The stored lists of gfx942 and gfx950 with simplified masks, by "arch receipt"."""
    return {
        f"{entry.arch} {entry.receipt}": list(entry.names())
        for entry in stored_lists()
        if (entry.api, entry.dialect, entry.mask_impl) == (api, version, "simplified")
        and entry.arch in ("gfx942", "gfx950") and entry.receipt in RECEIPTS and entry.families == APIS[api]
    }  # fmt: skip


# Lists without a name are not stored: batch prefill has no kernels for TransformerEngine, in May or in September.
EMPTY = {("batch_prefill", 700)}
VERSIONS = {"fwd": f"{SEPTEMBER}+head_dim_512"}
LISTS = {
    (api, new): lists_of(api, VERSIONS.get(api, SEPTEMBER) if new else MAY)
    for _, api in FILES.values()
    for new in (True, False)
    if api
}


def checkout_of(folder: Path, files: tuple[str, ...]) -> Path:
    """A checkout with these files of September, whose generate.py lists the names that upstream's lists there."""
    root = write_features(folder / "ck", [name for file in files for name in FILES[file][0]])
    listed = {api: LISTS[api, file in files] for file, (_, api) in FILES.items() if api}
    (folder / "lists.json").write_text(json.dumps(listed))
    (root / FMHA / "generate.py").write_text(
        "import json, sys\n"
        "options = dict(zip(sys.argv[1:-1], sys.argv[2:]))\n"
        f"lists = json.load(open({str(folder / 'lists.json')!r}))[options['--api']]\n"
        "names = lists.get(options['--targets'] + ' ' + options['--receipt'], [])\n"
        "open(options['--list_blobs'], 'w').write(''.join(f'{name}.cpp\\n' for name in names))\n"
    )
    return root


@pytest.mark.parametrize("files", STATES, ids="+".join)
def test_mixed_state_is_served_with_names_of_its_own_codegen(files: tuple[str, ...], tmp_path: Path) -> None:
    tree = locate("checkout", cache=tmp_path, ck_root=checkout_of(tmp_path, files))
    expected = {name for file in files for name in FILES[file][0]}
    stored = expected == {name for file, (names, _) in FILES.items() if file != "fmha_fwd.py" for name in names}
    assert set(tree.dialect.split("+")[1:]) == (set() if stored else expected)
    assert (tree.dialect == SEPTEMBER) == stored
    for api, receipt in itertools.product(filter(None, (api for _, api in FILES.values())), RECEIPTS):
        both = LISTS[api, True].keys() & LISTS[api, False].keys()
        archs = [arch for arch in ("gfx942", "gfx950") if (api, receipt) in EMPTY or f"{arch} {receipt}" in both]
        assert archs, (api, receipt)
        assert difference_from_dialect(tree, APIS[api], archs, tmp_path, receipt).same, (api, receipt)


@pytest.mark.parametrize("file", ["fmha_batch_prefill.py", "fmha_bwd.py"])
def test_words_of_one_state_with_names_of_another_are_told_apart(file: str, tmp_path: Path) -> None:
    root = checkout_of(tmp_path, (file,))
    (names, api), lists = FILES[file], json.loads((tmp_path / "lists.json").read_text())
    (tmp_path / "lists.json").write_text(json.dumps({**lists, api: LISTS[api, False]}))
    tree = locate("checkout", cache=tmp_path, ck_root=root)
    assert set(tree.dialect.split("+")[1:]) == set(names)
    common = LISTS[api, True].keys() & LISTS[api, False].keys()
    listed = next(name for name in sorted(common) if LISTS[api, True][name] != LISTS[api, False][name])
    arch, receipt = listed.split()
    difference = difference_from_dialect(tree, APIS[api], [arch], tmp_path, int(receipt))
    new, old = LISTS[api, True][listed], LISTS[api, False][listed]
    assert set(difference.extra) == set(new) - set(old)
    assert set(difference.missing) == set(old) - set(new)
