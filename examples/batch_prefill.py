"""Batch prefill: two sequences over a paged KV cache, each order of choice over a kernel of 64 and one of 128 rows."""

from examples import kernels, paging, results

cache = paging.sequences(4)
for order in ("upstream", "first-fit", "seqtune"):
    over = kernels.dispatcher("batch_prefill_128", "batch_prefill", order=order)
    done, counts = results.count(over.device, lambda over=over: cache.call(over))
    print()
    results.show_kernels(over, done)
    results.show_counts(counts)
    cache.check(done)
