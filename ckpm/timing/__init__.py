"""The timing model: a workgroup's instructions replayed through an issue model of one compute unit."""
