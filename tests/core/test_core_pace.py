from gateway.core.pace import Pace


def test_the_best_rate_seen_counts() -> None:
    pace = Pace()
    assert pace.tokens_per_s(100) is None
    pace.learn(1000, 2.0)
    pace.learn(1000, 0.5)
    pace.learn(1000, 1.0)
    assert pace.tokens_per_s(1000) == 2000.0


def test_it_holds_for_shorter_prompts_and_up_to_eight_times_longer_ones() -> None:
    pace = Pace()
    pace.learn(512, 0.5)
    assert pace.tokens_per_s(3) == 1024.0
    assert pace.tokens_per_s(8191) == 1024.0
    assert pace.tokens_per_s(8192) is None


def test_of_guesses_the_third_best_counts() -> None:
    pace = Pace()
    for seconds in (0.1, 0.5):
        pace.guess(1000, seconds)
    assert pace.tokens_per_s(1000) is None
    for seconds in (4.0, 1.0, 2.0):
        pace.guess(1000, seconds)
    assert pace.tokens_per_s(1000) == 1000.0
    pace.learn(1000, 0.25)
    assert pace.tokens_per_s(1000) == 4000.0


def test_nothing_is_learned_from_no_tokens_no_time_or_nonsense() -> None:
    pace = Pace()
    for tokens, seconds in ((0, 1.0), (-5, 1.0), (100, 0.0), (1 << 40, 1.0)):
        pace.learn(tokens, seconds)
        for _ in range(3):
            pace.guess(tokens, seconds)
    assert pace.tokens_per_s(0) is None
