from gateway.sim.limiter import Bucket, Pacer


def test_a_bucket_lets_a_burst_pass_and_then_what_has_been_refilled():
    bucket = Bucket(2)
    assert [bucket.admits(10.0) for _ in range(3)] == [True, True, False]
    assert [bucket.admits(10.5), bucket.admits(10.5)] == [True, False]
    # Refused requests take nothing.
    assert bucket.admits(11.0)


def test_a_bucket_that_rests_holds_no_more_than_its_burst():
    bucket = Bucket(2)
    bucket.admits(0.0)
    assert [bucket.admits(60.0) for _ in range(3)] == [True, True, False]


def test_a_bucket_of_less_than_one_a_second_still_lets_one_pass():
    bucket = Bucket(0.5)
    assert [bucket.admits(at) for at in (0.0, 1.0, 2.0)] == [True, False, True]


def test_a_pacer_gives_turns_at_even_distances():
    pacer = Pacer(4)
    assert [pacer.delay_s(at) for at in (10.0, 10.0, 10.125, 10.75)] == [0.0, 0.25, 0.375, 0.0]


def test_a_pacer_that_rests_saves_no_turns():
    pacer = Pacer(4)
    assert [pacer.delay_s(at) for at in (0.0, 60.0, 60.0)] == [0.0, 0.0, 0.25]
