"""The related lines of a finding: each once, without the line of the finding itself."""

from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.catalogue import RULES
from gradscope.rules.context import RuleContext
from tests.records import recording


def line(number, file="train.py"):
    return Site(file=f"/home/user/project/{file}", line=number, function="main", source=f"{number}")


def related_of(site, *related):
    made = RULES[0]().finding(
        RuleContext(recording()), message="", remedy="", site=site, related=related
    )
    return [(one.line, one.message) for one in made.related]


def test_each_line_is_listed_once_by_its_first_text():
    found = related_of(line(3), (line(5), "backward"), (line(7), "step"), (line(5), "again"))
    assert found == [(5, "backward"), (7, "step")]


def test_the_line_of_the_finding_and_unknown_lines_are_left_out():
    assert related_of(line(3), (line(3), "forward"), (None, "loss"), None) == []
    assert related_of(line(3), (line(3, "model.py"), "forward")) == [(3, "forward")]
    assert related_of(None, (line(3), "forward")) == [(3, "forward")]


def test_a_location_that_a_rule_made_stays_where_it_is():
    made = RelatedLocation(file="/home/user/project/train.py", line=3, message="made here")
    assert related_of(line(3), made, (line(3), "forward")) == [(3, "made here")]
