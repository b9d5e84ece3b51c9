"""Failures at launch are told apart, with a message. What is refused beforehand: test_refusals.py."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import Status
from ckpm.matrix.keys import Key
from tests.build.newest import EIGHT, NO_DEVICE, fake
from tests.build.newest_requests import served_request


def test_launch_without_problem_cuts_message_to_buffer(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    library = libraries["simplified", EIGHT]
    message = ctypes.create_string_buffer(b"xxxxxxxxxx", 10)
    assert library.abi.ckpm_launch(None, None, None, message, 6) == Status.BAD_PROBLEM
    assert message.raw == b"no pr\0xxxx"
    assert library.abi.ckpm_launch(None, None, None, None, 0) == Status.BAD_PROBLEM
    fake(library)
    assert library.abi.ckpm_launch(served_request(samples), None, None, None, 0) == Status.OK


def test_unknown_kernel(libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]) -> None:
    launch = libraries["simplified", EIGHT].launch(served_request(samples), "fmha_nothing")
    assert (launch.status, launch.kernel) == (Status.NO_KERNEL, None)
    assert launch.message == "no kernel 'fmha_nothing' in this library"


@pytest.mark.parametrize(
    ("set_up", "status", "message", "chooses"),
    [
        ({"device": NO_DEVICE}, Status.HIP_ERROR, "HIP: no device", False),
        ({"launch": NO_DEVICE}, Status.HIP_ERROR, "HIP Function Failed (x.hpp,1) no device", True),
        ({"stale": NO_DEVICE}, Status.OK, "", True),  # of an earlier call
        ({"throws": "wrong strides"}, Status.EXCEPTION, "wrong strides", True),
        ({"throws": ""}, Status.EXCEPTION, "an exception other than std::exception", True),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_failures_have_status_and_message(
    libraries: Mapping[tuple[str, str], Library],
    samples: Mapping[str, list[Key]],
    set_up: Mapping[str, Any],
    status: Status,
    message: str,
    chooses: bool,
    by_name: bool,
) -> None:
    library, problem = libraries["simplified", EIGHT], served_request(samples)
    fake(library)
    name = library.launch(problem).kernel
    if by_name and not chooses:
        return  # only dispatch asks for the device
    fake(library, **set_up)
    launch = library.launch(problem, name if by_name else None)
    assert (launch.status, launch.message) == (status, message)
    assert launch.kernel == (name if chooses else None)
    fake(library)
    assert library.launch(problem).status == Status.OK


def test_unsupported_request_after_hip_error_is_unsupported(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    library = libraries["simplified", EIGHT]
    fake(library, stale=NO_DEVICE)
    assert library.launch(served_request(samples).replace(data_type="fp32")).status == Status.UNSUPPORTED
