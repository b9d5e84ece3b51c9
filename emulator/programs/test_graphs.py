"""Graphs of HIP programs: captured from streams, made by hand, changed, and refused. Expectations come from HIP's
documentation ("Graph management") and from arithmetic.
"""

from __future__ import annotations

from programs.program_builder import sample
from programs.test_programs import output, run

UNSUPPORTED, INVALIDATED = "hipErrorStreamCaptureUnsupported", "hipErrorStreamCaptureInvalidated"


def _lines(*arguments: str, options: tuple[str, ...] = ()) -> list[list[str]]:
    return [line.split() for line in output(sample("graphs"), *arguments, options=options).decode().splitlines()]


def test_capture_of_two_streams() -> None:
    """A capture runs nothing. Each launch reads host memory again, and has copies of the kernels' arguments."""
    before, after, *rest = _lines("capture")
    assert before == ["capturing", "1", "calls", "0"]
    # Copy in, copy in, add, two times scale, sum, copy out, host function; two nodes wait for the first copy, two for
    # the sum's predecessors.
    assert after == ["capturing", "0", "nodes", "8", "edges", "8", "roots", "1"]
    *results, last = rest
    expected = [(r, i, 3 * (100 * r + i + 5) + 2 * (100 * r + i)) for r in range(3) for i in range(0, 64, 21)]
    assert [tuple(map(int, line[1:])) for line in results] == expected
    assert last == ["capturing", "0", "calls", "3"]


def test_graph_of_nodes_runs_in_order_of_edges() -> None:
    """An instantiated graph keeps its nodes until it is changed itself."""
    lines = _lines("nodes")
    assert lines == [
        ["order", str(1 * 10 + 4), "calls", "1", "type", "3"],
        ["factor", "10", "threads", "64"],
        ["set", str(1 * 20 + 4)],
        ["updated", str(1 * 10 + 7), "result", "0"],
        ["update", "hipErrorGraphExecUpdateFailure"],
        ["result", "2"],  # hipGraphExecUpdateErrorTopologyChanged
        ["child", str(1 * 10 + 4 + 100)],
        ["twice", "hipErrorInvalidValue"],
        ["cycle", "hipErrorInvalidValue"],
        ["gone", "hipErrorInvalidValue"],
        ["gone", "hipErrorInvalidValue"],
    ]


def test_calls_during_capture_are_refused() -> None:
    fine = "hipSuccess"
    assert _lines("errors", options=("--quiet",)) == [
        ["malloc", UNSUPPORTED, INVALIDATED],
        ["malloc_local", UNSUPPORTED, INVALIDATED],
        ["malloc_relaxed", fine, fine],
        ["thread", UNSUPPORTED, INVALIDATED],
        ["thread_local", fine, fine],
        ["synchronize", UNSUPPORTED, INVALIDATED],
        ["device", UNSUPPORTED, INVALIDATED],
        ["copy", "hipErrorStreamCaptureImplicit", INVALIDATED],
        ["event", "hipErrorCapturedEvent", INVALIDATED],
        ["isolation", "hipErrorStreamCaptureIsolation", INVALIDATED],
        ["after", INVALIDATED, INVALIDATED],
        ["unjoined", fine, "hipErrorStreamCaptureUnjoined"],
        ["unmatched", "hipErrorStreamCaptureUnmatched", fine],
        ["twice", "hipErrorIllegalState", fine],
        ["wrong_thread", "hipErrorStreamCaptureWrongThread", fine],
        ["default", UNSUPPORTED],
        ["none", "hipErrorIllegalState"],
    ]


def test_memory_of_graph() -> None:
    """Each launch allocates at the same address, and a use after the end is found."""
    done = run(sample("graphs"), "memory")
    twice = 2 * 0x01010101
    assert done.stdout.decode().split() == ["out", str(twice), "out", str(twice), "after", "hipErrorIllegalAddress"]
    assert "freed before" in done.stderr.decode()
