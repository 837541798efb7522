"""The end-to-end benchmark's pure parts: what is played, how engines are read, what the rounds show."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "real"
if not BENCHMARK.is_dir():
    pytest.skip("the source distribution comes without benchmarks", allow_module_level=True)
sys.path.append(str(BENCHMARK))

import miniswe  # noqa: E402
import miniswe_play as player  # noqa: E402
import miniswe_report as report  # noqa: E402
import miniswe_systems as systems  # noqa: E402
import miniswe_trace as trace  # noqa: E402

ENGINES = ("http://127.0.0.1:1", "http://127.0.0.1:2")


def row(session: str, at_s: float, keep: int, add: str, out: str = "x" * 40) -> str:
    return json.dumps({"s": session, "ts": at_s * 1e6, "keep": keep, "add": add, "out": out})


def figures(system: str, round_: int, **changes: Any) -> report.Figures:
    values = {
        "run": "r",
        "round": round_,
        "place": 0,
        "system": system,
        "blocks": 512,
        "seqs": 4,
        "hit_tokens": (80, 0),
        "query_tokens": (100, 0),
        "ttft_s": (1.0, 1.0),
        "errors": 0,
        "wall_s": 50.0,
    }
    return report.Figures(**(values | changes))


def pairs(ours: list[float], *rivals: list[float]) -> list[report.Round]:
    """TTFT of each round: of ours, and of the rivals a, b, ..."""
    names = [report.OURS, *"ab"[: len(rivals)]]
    return [
        {name: figures(name, index, ttft_s=(ttft_s, ttft_s)) for name, ttft_s in zip(names, own, strict=True)}
        for index, own in enumerate(zip(ours, *rivals, strict=True))
    ]


# What is played


def test_a_prompt_is_rebuilt_from_the_line_before_and_turns_follow_their_times() -> None:
    lines = [row("s", 5, 0, "abcdef"), row("s", 9, 3, "XYZ"), row("s", 6, 6, "!")]

    (session,) = trace.sessions(lines, trace.Cut(sessions=1))

    assert [turn.prompt for turn in session.turns] == ["abcdef", "abcXYZ!", "abcXYZ"]
    assert [turn.think_s for turn in session.turns] == [0.0, 1.0, 2.0]


def test_sessions_start_in_the_trace_s_order() -> None:
    lines = [row("late", 50, 0, "b"), row("early", 1, 0, "a")]

    played = trace.sessions(lines, trace.Cut(sessions=2, start_gap_s=1.5))

    assert [(it.start_s, it.turns[0].prompt) for it in played] == [(0.0, "a"), (1.5, "b")]


def test_a_cut_bounds_turns_prompts_outputs_and_pauses() -> None:
    lines = [row("s", second * 10, 0, "p" * 50, "o" * (8 if second else 0)) for second in range(4)]

    (session,) = trace.sessions(lines, trace.Cut(sessions=1, turns=3, prompt_chars=20, output_tokens=1))

    assert [len(turn.prompt) for turn in session.turns] == [20, 20, 20]
    assert [turn.output_tokens for turn in session.turns] == [1, 1, 1]
    assert [turn.think_s for turn in session.turns] == [0.0, 2.0, 2.0]


@pytest.mark.parametrize("line", ["no json", '{"s": "x"}', "[]"])
def test_a_line_of_another_file_is_told_by_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        trace.sessions([row("s", 1, 0, "a"), line], trace.Cut())


def test_a_trace_with_too_few_sessions_is_refused() -> None:
    with pytest.raises(ValueError, match="20 sessions are to be played, the trace has 1"):
        trace.sessions([row("s", 1, 0, "a")], trace.Cut())


# How engines and answers are read


def test_counters_add_up_over_label_sets_and_leave_other_metrics_alone() -> None:
    metrics = (
        "# HELP vllm:prefix_cache_hits_total Prefix cache hits\n"
        'vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 930.0\n'
        'vllm:prefix_cache_queries_total{engine="1",model_name="tiny"} 70.0\n'
        'vllm:external_prefix_cache_queries_total{engine="0"} 5.0\n'
        'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 3.84e+02\n'
        'vllm:prefix_cache_hits_created{engine="0"} 1.7e+09\n'
    )

    assert player.read_counters(metrics) == player.Counters(queries=1000, hits=384)


def test_an_engine_without_the_counters_is_named_as_such() -> None:
    with pytest.raises(player.EngineTrouble, match="vllm:prefix_cache_queries_total"):
        player.read_counters("up 1\n")


def test_the_gateway_s_funnel_is_summed_over_engines() -> None:
    steps = {"prompt_tokens": 90, "cached_tokens_best": 70, "cached_tokens_predicted": 60}
    metrics = "".join(
        f'prefix_gateway_{name}_total{{engine="{engine}",model="tiny"}} {value}.0\n'
        for name, value in (steps | {"cached_tokens_delivered": 50}).items()
        for engine in "ab"
    )

    funnel = player.read_funnel(metrics)

    assert funnel == {"prompt": 180, "best": 140, "predicted": 120, "delivered": 100}


def test_usage_is_found_at_the_end_of_a_stream_cut_anywhere() -> None:
    tail = (
        b'ices":[]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":32}}}\n\ndata: [DONE]\n\n'
    )

    assert player.read_usage(tail) == player.Usage(prompt_tokens=40, cached_tokens=32, output_tokens=2)
    assert player.read_usage(tail[60:]) is None


def test_an_unreported_cache_is_unknown_and_not_zero() -> None:
    usage = player.read_usage(b'data: {"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\n')

    assert usage == player.Usage(prompt_tokens=4, cached_tokens=None, output_tokens=2)


# How systems are started


def test_the_engine_s_command_is_filled_and_split() -> None:
    template = "env SEQS={seqs} BLOCKS={blocks} bash 'a b.sh' serve {port} {kv}"

    command = systems.engine_command(template, port=1, kv_port=2, blocks=512, seqs=4)

    assert command == ["env", "SEQS=4", "BLOCKS=512", "bash", "a b.sh", "serve", "1", "2"]


@pytest.mark.parametrize("template", ["serve {prot}", "serve {}"])
def test_an_unknown_place_in_the_engine_s_command_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="unknown place"):
        systems.engine_command(template, port=1, kv_port=2, blocks=512, seqs=4)


def test_the_gateway_is_told_the_engines_slots_and_nothing_else(tmp_path: Path) -> None:
    command = systems.system_command(
        systems.GATEWAY, port=5, metrics_port=6, engine_urls=ENGINES, seqs=4, folder=tmp_path
    )

    engines = ["--engine", "http://127.0.0.1:1,slots=4", "--engine", "http://127.0.0.1:2,slots=4"]
    addresses = ["--listen", "127.0.0.1:5", "--admin", "127.0.0.1:6"]
    assert command[command.index("serve") + 1 :] == engines + addresses


def test_haproxy_takes_engines_in_turns() -> None:
    config = systems.haproxy_config(5, ENGINES)

    assert "balance roundrobin\n server e0 127.0.0.1:1\n server e1 127.0.0.1:2\n" in config


def test_a_rival_that_is_not_there_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ValueError, match=r"vllm-router is not on PATH.*--systems"):
        systems.program(systems.VLLM)


def test_each_system_stands_in_each_place_once() -> None:
    orders = [miniswe.order(systems.SYSTEMS, round_) for round_ in range(len(systems.SYSTEMS))]

    assert all(set(place) == set(systems.SYSTEMS) for place in zip(*orders, strict=True))


# What the rounds show


def test_percentiles_are_of_one_round() -> None:
    row = figures("a", 0, ttft_s=tuple(float(n) for n in range(101)))

    assert (row.p50_s, row.p90_s) == (50.0, 90.0)


def test_the_hit_rate_is_a_ratio_of_sums() -> None:
    rows = [figures("a", 0, hit_tokens=(90, 0), query_tokens=(100, 300)), figures("a", 1)]

    assert report.hit_rate(rows) == (90 + 80) / (400 + 100)


def test_figures_survive_the_file_and_other_lines_are_passed_over() -> None:
    written = figures("a", 3)

    encoded = report.encode(written, {"first_errors": []})

    assert report.read(['{"kind": "setting", "cores": 2}\n', "\n", encoded]) == [written]


def test_only_complete_rounds_of_one_configuration_are_paired() -> None:
    whole = [figures("gateway", 0), figures("a", 0)]
    rows = [*whole, figures("gateway", 1), figures("a", 0, run="later"), figures("a", 0, blocks=2048)]

    found = report.paired(rows)

    assert found[512, 4] == [{"gateway": whole[0], "a": whole[1]}]
    assert list(found) == [(512, 4), (2048, 4)]


@pytest.mark.parametrize(
    ("ours", "rival", "said"),
    [
        ([0.5] * 6, [1.0] * 6, "better"),
        ([1.0] * 6, [0.5] * 6, "worse"),
        ([1.0] * 6, [1.0] * 6, "tie"),
        ([0.5, 0.5, 0.5, 0.5, 2.0, 2.0], [1.0] * 6, "tie"),
    ],
)
def test_a_verdict_needs_an_interval_off_one(ours: list[float], rival: list[float], said: str) -> None:
    p50, p90, hits = report.compare(pairs(ours, rival))

    assert (p50.verdict, p90.verdict, hits.verdict) == (said, said, "tie")
    assert report.verdict([p50, p90, hits]) == said


def test_the_ratio_is_the_geometric_mean_of_the_rounds_own_ratios() -> None:
    # A slow machine in one round slows both: the pair's ratio stays.
    p50, _, _ = report.compare(pairs([1.0, 10.0, 1.0, 10.0], [2.0, 20.0, 2.0, 20.0]))

    assert (p50.value, p50.low, p50.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_best_rival_is_the_one_compared_with() -> None:
    p50, _, _ = report.compare(pairs([1.0] * 4, [4.0] * 4, [2.0] * 4))

    assert (p50.rival, p50.value) == ("b", pytest.approx(0.5))


def test_choosing_the_best_rival_in_each_draw_never_helps_ours() -> None:
    noisy = pairs([1.0] * 4, [0.5, 2.0, 0.5, 2.0], [2.0, 0.5, 2.0, 0.5])

    together, alone = report.compare(noisy)[0], report.compare([{**r, "b": r["a"]} for r in noisy])[0]

    assert together.low is not None
    assert alone.low is not None
    assert together.low > alone.low


def test_hits_are_compared_in_their_difference() -> None:
    rounds = [
        {
            "gateway": figures("gateway", index, hit_tokens=(70, 0)),
            "a": figures("a", index, hit_tokens=(75 + index, 0)),
        }
        for index in range(4)
    ]

    hits = report.compare(rounds)[2]

    assert (hits.value, hits.verdict) == (pytest.approx(-0.065), "worse")
    assert report.line(hits) == "hit rate: -6.5 points (-7.5 to -5.5) against a: worse"


def test_few_rounds_give_figures_and_no_verdict() -> None:
    comparisons = report.compare(pairs([0.5] * 3, [1.0] * 3))

    assert report.line(comparisons[0]) == "TTFT p50: 0.50 x of a: too few rounds"
    assert report.verdict(comparisons) == "too few rounds"


def test_ours_without_a_rival_is_not_compared() -> None:
    with pytest.raises(ValueError, match="one rival"):
        report.compare(pairs([1.0]))


def test_the_report_shows_every_system_and_the_verdict() -> None:
    out = io.StringIO()
    rows = [row for own in pairs([0.5] * 4, [1.0] * 4) for row in own.values()]

    report.show(rows, Console(file=out, width=110))

    text = out.getvalue()
    assert "512 KV blocks, 4 sequences an engine, rounds: 4" in text
    assert "100 / 0" in text
    assert "gateway against the best rival: better" in text
