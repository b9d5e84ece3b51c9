"""Measure the figures that this project promises."""
