"""Summaries count cosines exactly, however often they are merged."""

import random
from collections import Counter
from dataclasses import replace

from gradscope.recording.thinning.chunks import cosines_of
from gradscope.recording.thinning.readings import Reading


def test_cosines_are_counted_by_line_and_hundredth():
    chooser = random.Random(0)
    cosines = [chooser.uniform(-1.0, 1.0) for _ in range(500)]
    blank = Reading(0, None, {})
    readings = [
        replace(blank, step=step, cosines={step % 2: cosine}) for step, cosine in enumerate(cosines)
    ]
    found = cosines_of(readings)
    for site in (0, 1):
        own = cosines[site::2]
        assert sum(found[site].values()) == len(own)
        for limit in (0, 50, 80, 95):
            below = sum(count for hundredth, count in found[site].items() if hundredth < limit)
            assert below == sum(cosine < limit / 100 for cosine in own)
    assert (
        found[0] + found[1]
        == cosines_of(
            [
                replace(one, cosines={0: cosine})
                for one, cosine in zip(readings, cosines, strict=True)
            ]
        )[0]
    )
    assert not Counter(cosines_of([blank]))
