"""A soft cap, cap * tanh(score / cap): how far it moves O, and that the kernel moves it just as far."""

import numpy as np

from examples import kernels, paging, results

cache = paging.sequences(7)
dispatcher = kernels.dispatcher("soft_cap")
outputs = []
for cap in (0.5, 50.0):
    done = cache.call(dispatcher, soft_cap=cap, mask="bottom_right", lse=True)
    print(f"\ncap {cap:g}")
    results.show_kernels(dispatcher, done)
    cache.check(done)
    outputs.append(done.o)
print(f"\nO of the two caps differs by up to {np.abs(outputs[0] - outputs[1]).max():.2f}")
