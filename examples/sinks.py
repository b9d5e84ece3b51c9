"""Sinks: leading keys that are seen beside a sliding window. The kernel is this project's own, `ckpm`."""

from ckpm.attention import reference
from examples import kernels, paging, results

cache = paging.sequences(8)
dispatcher = kernels.dispatcher("sinks")
for sinks in (2, 8):
    done = cache.call(dispatcher, sink_size=sinks, mask="bottom_right", window=(15, 0))
    seen = reference.visible(done.problem, paging.QUERIES[0], paging.KEYS[0])
    print(f"\n{sinks} sinks beside a window of 16: the first sequence sees {seen.sum()} of {seen.size} pairs")
    results.show_kernels(dispatcher, done)
    cache.check(done)
