"""Attention backends of SGLang and vLLM from their packages, driven with small models on the emulated device."""
