"""Measuring the figures this project promises."""
