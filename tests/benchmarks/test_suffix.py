"""Tests the suffix benchmark: its medians, and a run with short texts."""

from __future__ import annotations

import dataclasses
import json

import suffix

COST = suffix.Cost(
    text="code",
    num_tokens=10,
    append_ns=1.0,
    evict_ns=1.0,
    chain_ns=1.0,
    tree_ns=1.0,
    num_proposed=2.5,
    bytes_per_token=80.0,
)


def test_each_time_is_the_median_of_its_own() -> None:
    rounds = [dataclasses.replace(COST, append_ns=time, chain_ns=-time) for time in (3.0, 9.0, 5.0)]
    cost = suffix.median_of(rounds)
    assert (cost.append_ns, cost.chain_ns, cost.tree_ns) == (5.0, -5.0, 1.0)
    assert (cost.text, cost.num_proposed) == ("code", 2.5)


def test_a_short_run_reports_every_text(tmp_path, capsys) -> None:
    path = tmp_path / "suffix.json"
    suffix.main(["--tokens", "2000", "--window", "4", "--rounds", "2", "--json", str(path)])
    report = json.loads(path.read_text(encoding="utf-8"))
    costs = {cost["text"]: cost for cost in report["costs"]}
    assert list(costs) == [name for name, _ in suffix.TEXTS]
    assert costs["one token"]["num_proposed"] == 4.0
    assert costs["random tokens"]["num_proposed"] < 0.5
    assert all(cost["append_ns"] > 0 and cost["bytes_per_token"] > 0 for cost in costs.values())
    assert report["provenance"]["cpu"]
    assert capsys.readouterr().out.count("\n") == 2 + len(suffix.TEXTS)
