"""How often a display is drawn, and a run is judged."""

from gradscope.export.live_metrics import Pace


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def spent(pace, clock, seconds):
    with pace:
        clock.now += seconds


def test_quick_turns_keep_their_distance():
    clock = Clock()
    pace = Pace(0.25, clock=clock)
    assert pace.is_due
    spent(pace, clock, 0.001)
    clock.now += 0.24
    assert not pace.is_due
    clock.now += 0.02
    assert pace.is_due


def test_slow_turns_take_no_more_than_their_share_of_the_time():
    clock = Clock()
    pace = Pace(2.0, share=0.02, clock=clock)
    busy = 0.0
    for _ in range(100_000):
        clock.now += 0.01
        if pace.is_due:
            cost = 0.5 + clock.now / 1_000  # ever longer, as a recording grows
            spent(pace, clock, cost)
            busy += cost
    assert 0.01 < busy / clock.now < 0.025


def test_turn_that_fails_counts_too():
    clock = Clock()
    pace = Pace(1.0, clock=clock)
    try:
        with pace:
            clock.now += 1.0
            raise ValueError
    except ValueError:
        pass
    assert not pace.is_due
