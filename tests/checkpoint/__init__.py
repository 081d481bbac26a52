"""Tests of the GGUF reader, of dequantization, and of pulling models."""
