"""Backends run models. Each one is a folder with a model and a sampler, behind the interfaces of `protocol`.

`registry` finds them by name. Importing this package loads no backend, so that listing their names is cheap.
"""
