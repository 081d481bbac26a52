"""Tests of token ids, chat templates, detokenizer and stop strings."""
