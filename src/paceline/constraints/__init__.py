"""Constraints on the form of an output: JSON schemas, regular expressions, grammars and choices, through `llguidance`.

`sampling.constraints` has the interface that engine and drafters use. The gateway checks a constraint in a process of
its own (`compile_check`) before it sends the request to an engine, which compiles it for its model (`guidance`).
"""
