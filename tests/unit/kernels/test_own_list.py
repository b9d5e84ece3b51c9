"""A checkout is compared with its dialect by what its own codegen lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import UpstreamError, UsageError
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library.request import Request, prepare
from ckpm.kernels.upstream.codegen_runner import difference_from_dialect
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_names
from ckpm.matrix.selection import select
from tests.unit.kernels.test_upstream import list_names_instead

ALIEN = "fmha_batch_prefill_of_2027"


@pytest.fixture
def request_of_checkout(request_for: Callable[..., Request], stub_toolchain: Callable[..., Toolchain]) -> Request:
    request = request_for(stub_toolchain())
    return dataclasses.replace(request, tree=dataclasses.replace(request.tree, name="checkout"))


def test_kernels_that_tree_lacks_are_left_out(request_of_checkout: Request, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    request = request_of_checkout
    names = [key.name for key in select(dialect(request.tree.dialect), request.selection)]
    list_names_instead(request.tree.root, [*names[3:], ALIEN])
    _, keys = prepare(request)
    assert [key.name for key in keys] == names[3:]
    (note,) = [message for message in caplog.messages if "lists other kernels" in message]
    assert f"1 missing ({ALIEN}); 3 extra ({min(names[:3])}, ..)" in note


def test_tree_that_lists_no_selected_kernel_is_refused(request_of_checkout: Request) -> None:
    list_names_instead(request_of_checkout.tree.root, [ALIEN])
    with pytest.raises(UsageError, match="no selected kernel is listed by the tree's codegen"):
        prepare(request_of_checkout)


def test_v2_names_of_pull_request_6054_are_no_difference(tree: Tree, tmp_path: Path) -> None:
    names = enumerate_names(dialect("prefill-v3").family("batch_prefill"), arch="gfx950")
    list_names_instead(
        tree.root, [name.replace("_gfx9", "_gfx950") if name.endswith("_gfx9") else name for name in names]
    )
    tree_of_v3 = dataclasses.replace(tree, dialect="prefill-v3")
    assert not difference_from_dialect(tree_of_v3, ("batch_prefill",), ("gfx950",), tmp_path / "cache").lines()


def test_codegen_that_lists_nothing_is_error(tree: Tree, tmp_path: Path) -> None:
    (tree.fmha / "generate.py").write_text("")
    with pytest.raises(UpstreamError, match="wrote no list of kernels"):
        difference_from_dialect(tree, ("batch_prefill",), ("gfx950",), tmp_path / "cache")
