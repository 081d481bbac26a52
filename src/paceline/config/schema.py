"""Settings as frozen, validated values: `EngineConfig` for one engine process, `ServerConfig` for the server.

Unknown keys fail. Where values come from (defaults, file, environment, flags) is `sources`' concern.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from paceline.config.secrets import SecretReference, read_secret
from paceline.core import ActivationRounding, KvCacheType
from paceline.core.errors import ConfigError

SpeculationSetting = Literal["auto", "fixed", "off"]

DEFAULT_DRAFT_VOCAB_SIZE = 49152
DEFAULT_CONTEXT_WINDOW_SIZE = 4096


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth(cls, value: object, info: ValidationInfo) -> object:
        """Refuses true and false where a number or a name is wanted; pydantic would take true for 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("a number or a name is wanted here")
        return value


class ModelSettings(_Section):
    """Which model an engine runs, where, and how much it may use; the section `engine` of a settings file.

    `backend` is where models run: `native` (the C++ core), or `reference` (numpy; slow, to be read and compared with).
    `context_window_size` None means 4,096 tokens, or what the model was made for where that is less; a number that the
    model was not made for is refused. `num_threads` None means all cores that the process may use.
    `kv_cache_size_bytes` None means enough for `max_batch_size` sequences of `context_window_size`, or for what memory
    allows. `kv_cache_type` is how K and V are stored (the draft model's too); `activation_bits` what activations are
    rounded to before they meet quantized weights (None: 8, or 15 for narrow models). Both change the logits, and so the
    text. `hub_token` says where the model hub's access token is (None: where `huggingface_hub` finds it).
    """

    model: str = Field(min_length=1)
    backend: str = Field(default="native", min_length=1)
    context_window_size: int | None = Field(default=None, ge=16)
    max_batch_size: int = Field(default=8, ge=1, le=256)
    num_threads: int | None = Field(default=None, ge=1, le=1024)
    kv_cache_size_bytes: int | None = Field(default=None, ge=1)
    kv_cache_type: KvCacheType = KvCacheType.F16
    activation_bits: Literal[8, 15] | None = None
    prefill_chunk_size: int = Field(default=256, ge=1)
    has_prefix_cache: bool = True
    is_offline: bool = False
    hub_token: SecretReference | None = None

    @field_validator("activation_bits", mode="before")
    @classmethod
    def _read_number(cls, value: object) -> object:
        """Accepts what the environment has: digits."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    def read_hub_token(self) -> str | None:
        """Returns the model hub's access token; raises ConfigError where it is not at the place that is named."""
        if self.hub_token is None:
            return None
        try:
            return read_secret(self.hub_token)
        except ConfigError as error:
            raise ConfigError(f"hub_token is {self.hub_token}, but {error}: set it, or remove hub_token") from error

    @property
    def activation_rounding(self) -> ActivationRounding | None:
        """What `activation_bits` asks for; None leaves it to the model's width."""
        return None if self.activation_bits is None else ActivationRounding(f"{self.activation_bits}-bits")


class SpeculationSettings(_Section):
    """Who drafts and how much; the section `speculation` of a settings file, where `speculation` is called `mode`.

    `speculation` is `auto` (drafters and windows are found by measurement), `fixed` (always `num_speculative_tokens`
    tokens where there is a draft) or `off`; `num_speculative_tokens` is the cap of every window. A drafter whose share
    of accepted tokens falls below `fallback_threshold` (None: whatever it is) rests. `drafters` None means those that
    fit: suffix, shared-layers where `shared_layers` says how many, and the draft model where one is given or the
    catalog names one. `shared_layers` is how many of the target's first layers draft, with its output layer, for models
    without a small sibling (None or 0: none do). `suffix_store_tokens` bounds the recent outputs that the suffix
    drafter keeps to draft from, over all tenants (0: none are kept; a token takes up to 200 bytes). `draft_vocab_size`
    is how many tokens, the most frequent ones, a draft model can guess (None: all); `draft_weight_bits` what its
    weights are rounded to (None: as in the file).
    """

    speculation: SpeculationSetting = "auto"
    num_speculative_tokens: int = Field(default=16, ge=0, le=16)
    fallback_threshold: float | None = Field(default=None, ge=0, le=1)
    drafters: tuple[str, ...] | None = None
    draft_model: str | None = Field(default=None, min_length=1)
    draft_vocab_size: int | None = Field(default=DEFAULT_DRAFT_VOCAB_SIZE, ge=1)
    draft_weight_bits: Literal[4] | None = 4
    shared_layers: int | None = Field(default=None, ge=0)
    suffix_store_tokens: int = Field(default=250_000, ge=0)

    @field_validator("drafters", mode="before")
    @classmethod
    def _split_drafters(cls, value: object) -> object:
        """Accepts what the command line accepts: names joined by commas, or `none`."""
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        return () if names == ("none",) else names

    @field_validator("draft_vocab_size", "draft_weight_bits", mode="before")
    @classmethod
    def _read_limit(cls, value: object) -> object:
        """Accepts what the command line accepts: a number, or `all` for no limit."""
        if not isinstance(value, str):
            return value
        return None if value == "all" else int(value) if value.isdecimal() else value


class EngineConfig(SpeculationSettings, ModelSettings):
    """One engine: which models it runs, how much it may use, and who drafts."""


class ServerConfig(_Section):
    """The server; the section `server` of a settings file. `served_model_name` None means the model's catalog or file
    name.

    `max_queued_requests` bounds the requests of an engine that wait for their first token. `ready_timeout_s` is how
    long a request waits for an engine that is starting; `engine_timeout_s` after how long a silence, more than the
    longest step, an engine is taken for dead; `shutdown_grace_s` how long open responses may go on after a signal.
    """

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=0, le=65535)
    served_model_name: str | None = Field(default=None, min_length=1)
    max_queued_requests: int = Field(default=256, ge=1)
    max_body_size_bytes: int = Field(default=16 * 2**20, ge=1)
    ready_timeout_s: float = Field(default=60.0, gt=0)
    engine_timeout_s: float = Field(default=600.0, gt=0)
    shutdown_grace_s: float = Field(default=5.0, ge=0)
    log_format: Literal["plain", "json"] = "plain"
