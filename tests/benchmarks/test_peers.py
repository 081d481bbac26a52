"""Tests the comparison with other engines: rates and ratios of given times, the table, and a run of Paceline alone."""

from __future__ import annotations

import json
from pathlib import Path

import peers
import pytest
from peer_engines import LLAMA_CPP_BUILD, LLAMA_CPP_WHEEL, PACELINE, Models, PeerEngine, Stream, llama_cpp_build
from prompts import text_passages

from paceline.checkpoint import GgufFile, resolve_model
from paceline.operations.workload import Task
from paceline.tokenizer import Tokenizer

RATES = {
    PACELINE: {"decode": [30.0, 10.0, 40.0], "prompt": [200.0, 100.0, 300.0]},
    LLAMA_CPP_WHEEL: {"decode": [10.0, 10.0, 20.0], "prompt": [100.0, 100.0, 100.0]},
    LLAMA_CPP_BUILD: {"decode": [15.0, 5.0, 10.0], "prompt": [50.0, 50.0, 50.0]},
}


def test_decoding_counts_from_the_first_token_on() -> None:
    assert peers.decode_rate(Stream(11, [1.0, 2.0, 3.0], 3.0)) == 5.0


def test_an_answer_whose_text_was_held_back_starts_at_its_end() -> None:
    assert Stream(1, [], 2.5).first_s == 2.5


def test_streams_count_only_while_all_of_them_decode() -> None:
    early = Stream(8, [1.0, 2.0, 3.0, 4.0], 4.0)
    late = Stream(4, [2.0, 3.0, 4.0, 5.0], 5.0)
    assert peers.together_rate([early, late]) == (2 * 2 + 2 * 1) / 2.0


def test_streams_that_never_decode_together_have_no_rate() -> None:
    with pytest.raises(ValueError, match="never decoded at the same time"):
        peers.together_rate([Stream(2, [1.0, 2.0], 2.0), Stream(2, [3.0, 4.0], 4.0)])


def test_a_ratio_is_to_the_best_rival_of_the_same_round() -> None:
    assert peers.ratio(RATES, PACELINE, (LLAMA_CPP_WHEEL, LLAMA_CPP_BUILD), "decode") == 2.0
    assert peers.ratio(RATES, PACELINE, (LLAMA_CPP_WHEEL, "absent"), "prompt") == 2.0
    assert peers.ratio(RATES, PACELINE, ("absent",), "decode") is None
    assert peers.ratio(RATES, PACELINE, (LLAMA_CPP_WHEEL,), "streams") is None


def test_drafts_are_compared_with_the_best_mode_of_llama_cpp() -> None:
    drafting = {
        f"{PACELINE}, all drafters": {"decode": [60.0] * 3},
        f"{LLAMA_CPP_BUILD}, n-gram": {"decode": [40.0] * 3},
    }
    rows = peers.ratio_rows(RATES | drafting)
    assert rows["Paceline with drafts / best llama.cpp of any mode"]["decode"] == 1.5
    assert rows["Paceline / best llama.cpp"]["decode"] == 2.0


def test_the_table_says_what_is_missing() -> None:
    table = peers.render([*RATES, "other"], RATES, {"other": "not installed"}, 8)
    lines = table.splitlines()
    assert lines[0] == "| tokens per second | decoding | prompt | 8 streams |"
    assert lines[2] == "| Paceline | 30.0 | 200.0 | - |"
    assert lines[5] == "| other | not installed | - | - |"
    assert lines[6] == "| **Paceline / best llama.cpp** | 2.00x | 2.00x | - |"


def test_a_build_that_is_not_there_says_how_to_name_one(tmp_path) -> None:
    models = Models("any", resolve_model("smollm2-135m"), None, 1)
    for binary in (None, tmp_path / "llama-server"):
        engine = llama_cpp_build(models, binary)
        assert engine.start is None
        assert "--llama-server" in str(engine.missing)


def test_an_engine_that_fails_leaves_the_others_measured() -> None:
    def fail(num_streams: int):
        raise RuntimeError(f"no room for {num_streams} streams")

    rates, missing = peers.measure([PeerEngine("broken", fail)], peers.Prompts([1], [[1]], [[1]], [[1]]), 2, 2)
    assert rates == {}
    assert list(missing) == ["broken"]


def test_passages_begin_differently_and_have_their_length(tiny_pair) -> None:
    with GgufFile.open(tiny_pair.target) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, None)
    tasks = [Task("a", "talk", [{"role": "user", "content": "one two three, four five six"}], 4)]
    passages = text_passages(tokenizer, tasks, 300, 3)
    assert [len(passage) for passage in passages] == [300] * 3
    assert len({tuple(passage[:8]) for passage in passages}) == 3


def test_a_tiny_run_of_the_server_gives_every_figure(tiny_pair, tmp_path, capsys) -> None:
    path = Path(tmp_path, "peers.json")
    sizes = ["--num-tasks", "2", "--num-streams", "2", "--prompt-length", "48", "--max-tokens", "300", "--rounds", "1"]
    peers.main(["--model", str(tiny_pair.target), "--engines", PACELINE, *sizes, "--json", str(path)])
    report = json.loads(path.read_text(encoding="utf-8"))
    rates = report["tokens_per_s"][PACELINE]
    assert {figure: len(found) for figure, found in rates.items()} == {"decode": 1, "prompt": 1, "streams": 1}
    assert all(rate > 0 for found in rates.values() for rate in found)
    assert report["ratios"]["Paceline / best llama.cpp"] == {"decode": None, "prompt": None, "streams": None}
    assert f"| {PACELINE} |" in capsys.readouterr().out
