"""The backward pass: its call from arrays to gradients, and gradients in float64."""
