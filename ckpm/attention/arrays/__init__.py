"""Arguments of a call: arrays of the host, tensors of frameworks, addresses; and the problem that they pose."""
