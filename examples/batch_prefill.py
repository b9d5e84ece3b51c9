"""Batch prefill: two sequences over a paged KV cache, each order of choice over a kernel of 64 and one of 128 rows."""

from examples import kernels, paging, results

cache = paging.sequences(4)
for order in ("upstream", "first-fit", "seqtune"):
    dispatcher = kernels.dispatcher("batch_prefill_128", "batch_prefill", order=order)
    done, counts = results.count(dispatcher.device, lambda dispatcher=dispatcher: cache.call(dispatcher))
    print()
    results.show_kernels(dispatcher, done)
    results.show_counts(counts)
    cache.check(done)
