"""Backends: where models run. Each is a folder with its model and its sampler, behind the interface of `protocol`.

`registry` knows them by name. Importing the package loads nothing, so that names can be had cheaply.
"""
