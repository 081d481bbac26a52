"""Tests of token ids, chat templates, the detokenizer and stop strings."""
