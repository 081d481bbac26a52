"""Settings as frozen, validated values: `EngineConfig` for one engine process, `ServerConfig` for the server.

Unknown keys fail. The module `sources` gathers the values from defaults, file, environment and flags.
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


def split_names(value: object) -> object:
    """Returns the names in a text that joins them by commas; any other value stays as it is."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth(cls, value: object, info: ValidationInfo) -> object:
        """Refuses true and false for settings that are numbers or names; pydantic would read true as 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("it must be a number or a name")
        return value


class ModelSettings(_Section):
    """Which model an engine runs, on which backend, and how much it may use: the section `engine` of a settings file.

    `backend` is `native` (the C++ core) or `reference` (numpy; slow, for reading and comparing). `context_window_size`
    None means 4,096 tokens, or the model's maximum if that is less; a number above the model's maximum is refused.
    `num_threads` None means all cores that the process may use. `kv_cache_size_bytes` None means enough for
    `max_batch_size` full context windows, or as much as memory allows. `kv_cache_type` says how K and V are stored, for
    the draft model too. `activation_bits` is the number of bits to which activations are rounded before they are
    multiplied with quantized weights (None: 8, or 15 for narrow models). Both change the logits, and so the text. With
    `has_warmup`, an engine answers a short request of its own before it is ready, so that the first client does not
    wait for what happens only once. `hub_token` says where the model hub's access token is (None: where
    `huggingface_hub` finds it).
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
    has_warmup: bool = False
    is_offline: bool = False
    hub_token: SecretReference | None = None

    @field_validator("activation_bits", mode="before")
    @classmethod
    def _read_number(cls, value: object) -> object:
        """Accepts a number written as text, as it comes from the environment or the command line."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    def read_hub_token(self) -> str | None:
        """Returns the model hub's access token (None: not set); raises ConfigError if `hub_token` names a place that
        has none."""
        if self.hub_token is None:
            return None
        try:
            return read_secret(self.hub_token)
        except ConfigError as error:
            raise ConfigError(f"hub_token is {self.hub_token}, but {error}: set it, or remove hub_token") from error

    @property
    def activation_rounding(self) -> ActivationRounding | None:
        """The rounding that `activation_bits` asks for; None lets the model's width decide."""
        return None if self.activation_bits is None else ActivationRounding(f"{self.activation_bits}-bits")


class SpeculationSettings(_Section):
    """Who drafts and how much: the section `speculation` of a settings file, where `speculation` is called `mode`.

    `speculation` is `auto` (measurements decide on drafters and windows), `fixed` (drafts always have
    `num_speculative_tokens` tokens if possible) or `off`. `num_speculative_tokens` is the cap of every window. In mode
    `auto`, a drafter rests while its acceptance rate is below `fallback_threshold` (None: there is no threshold).
    `drafters` None means suffix, shared-layers if `shared_layers` is set, and the draft model if one is given or the
    catalog names one. `shared_layers` is the number of the target's first layers that draft, with its output layer, for
    models without a smaller sibling (None or 0: none). `suffix_store_tokens` is the number of tokens of recent outputs
    that the suffix drafter keeps, over all tenants (0: none; a token takes up to 200 bytes). `draft_vocab_size` is the
    number of tokens, the most frequent ones, that a draft model can guess (None: all). `draft_weight_bits` is the
    number of bits to which its weights are rounded (None: they stay as in the file).
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
        """Accepts names joined by commas, or `none`, as on the command line."""
        names = split_names(value)
        return () if names == ("none",) else names

    @field_validator("draft_vocab_size", "draft_weight_bits", mode="before")
    @classmethod
    def _read_limit(cls, value: object) -> object:
        """Accepts a number written as text, or `all` for no limit, as on the command line."""
        if not isinstance(value, str):
            return value
        return None if value == "all" else int(value) if value.isdecimal() else value


class EngineConfig(SpeculationSettings, ModelSettings):
    """One engine: which models it runs, how much it may use, and who drafts."""


class ServerConfig(_Section):
    """The server: the section `server` of a settings file.

    `grpc_port` None means that gRPC is not served; with `has_grpc_reflection`, clients can ask which services there
    are. `served_model_name` None means the model's name in the catalog, or its file name. `max_queued_requests` limits
    the requests of an engine that wait for their first token. `ready_timeout_s` is how long a request waits for an
    engine that is starting. An engine that sends nothing for `engine_timeout_s` is killed and started again; this must
    be longer than the longest step. `shutdown_grace_s` is how long open responses may go on after a signal.
    `tool_format` names the format of the model's tool calls (None: the one that its chat template shows). With
    `reasoning_format` `auto`, responses have the model's reasoning in a field of its own; with `none`, in the content.
    With `default_sampling` `model`, requests that do not set a sampling parameter get what the model's author
    recommends; with `openai`, the defaults of OpenAI's API. `fronts` names the APIs that are served (None: all of
    them). `cors_origins` are the addresses of web pages that may use the server from a browser (`*`: all);
    `allowed_hosts` are names besides the machine's own by which a server at the loopback interface may be called.
    `keep_alive_s` is how long a stream may be silent before its first token until the client gets a sign of life.
    """

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=0, le=65535)
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    has_grpc_reflection: bool = False
    served_model_name: str | None = Field(default=None, min_length=1)
    max_queued_requests: int = Field(default=256, ge=1)
    max_body_size_bytes: int = Field(default=16 * 2**20, ge=1)
    ready_timeout_s: float = Field(default=60.0, gt=0)
    engine_timeout_s: float = Field(default=600.0, gt=0)
    shutdown_grace_s: float = Field(default=5.0, ge=0)
    tool_format: str | None = Field(default=None, min_length=1)
    reasoning_format: Literal["auto", "none"] = "auto"
    default_sampling: Literal["model", "openai"] = "model"
    fronts: tuple[str, ...] | None = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    keep_alive_s: float = Field(default=10.0, gt=0)
    log_format: Literal["plain", "json"] = "plain"

    @field_validator("fronts", "cors_origins", "allowed_hosts", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Accepts names joined by commas, as on the command line."""
        return split_names(value)
