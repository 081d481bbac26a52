"""Constraints on what a model may say (grammars, schemas, regular expressions); empty until they land."""
