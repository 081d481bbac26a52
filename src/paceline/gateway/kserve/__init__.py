"""The front that speaks the KServe Open Inference Protocol v2, with the names of tensors that Triton's backends have.

Protocol: https://github.com/kserve/open-inference-protocol; extensions: Triton's binary tensor data and generate.
"""
