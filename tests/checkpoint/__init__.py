"""Tests of the GGUF reader, dequantization, and pulling models."""
