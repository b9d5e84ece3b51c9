"""Dropout with the random bytes that the kernel drew: the number of kept weights, and O with only these weights."""

from examples import kernels, paging, results

cache = paging.sequences(6)
dispatcher = kernels.dispatcher("dropout")
done = cache.call(dispatcher, dropout=0.25, seed=7, random_values=True, mask="bottom_right", lse=True)
again = cache.call(dispatcher, dropout=0.25, seed=7, random_values=True, mask="bottom_right", lse=True)
other = cache.call(dispatcher, dropout=0.25, seed=8, random_values=True, mask="bottom_right", lse=True)
drawn, repeated, others = done.random_values, again.random_values, other.random_values  # [head, token, key]
assert drawn is not None
assert repeated is not None
assert others is not None
per_sequence = [drawn[:, :40, :70], drawn[:, 40:, :25]]
kept = sum(int((values <= 191).sum()) for values in per_sequence)  # floor(0.75 * 255)
results.show_kernels(dispatcher, done)
print(f"kept    {kept} of {sum(values.size for values in per_sequence)} weights")
same, differs = bool((drawn == repeated).all()), bool((drawn != others).any())
print(f"seeds   the same bytes from one seed: {same}, others from another: {differs}")
cache.check(done, random_values=per_sequence)
if not (same and differs):
    raise SystemExit(1)
