"""The backward pass: fields of its C ABI, its call from arrays to gradients, and gradients in float64."""
