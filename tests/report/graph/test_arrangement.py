"""The steps of the layout, against what can be told without them."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.report.graph.arrangement import ascending, crossings, ordered
from gradscope.report.graph.layers import Arc, Item, layered

BOX = Item(left=10, right=10, height=10)


def below_of(graph):
    below = {}
    for one in graph.segments:
        below.setdefault(one.upper, []).append(one.lower)
    return below


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 12))
    ends = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(ends, ends).filter(lambda p: p[0] != p[1]), unique=True))
    return [BOX] * size, [Arc(source=one, target=other) for one, other in pairs]


@settings(deadline=None)
@given(graphs())
def test_links_lead_from_layer_to_layer(given_graph):
    graph = layered(*given_graph)
    layer = {item: position for position, items in enumerate(graph.layers) for item in items}
    assert sorted(layer) == list(range(len(layer)))
    for one in graph.segments:
        assert layer[one.lower] == layer[one.upper] + 1
    for arc, way, back in zip(given_graph[1], graph.ways, graph.is_back, strict=True):
        assert (way[0], way[-1]) == (arc.source, arc.target)
        assert (layer[arc.source] < layer[arc.target]) != back
        assert all(bend >= len(given_graph[0]) for bend in way[1:-1])


@settings(deadline=None)
@given(graphs())
def test_only_circles_have_links_that_lead_up(given_graph):
    items, arcs = given_graph
    graph = layered(items, arcs)
    down = [arc for arc in arcs if arc.source < arc.target]
    assert not any(layered(items, down).is_back)
    reach = {arc.source: {arc.target} for arc in arcs}
    for arc in arcs:
        reach[arc.source].add(arc.target)
    for arc, back in zip(arcs, graph.is_back, strict=True):
        if back:
            seen, pending = set(), [arc.target]
            while pending:
                item = pending.pop()
                if item not in seen:
                    seen.add(item)
                    pending += reach.get(item, ())
            assert arc.source in seen


@settings(deadline=None)
@given(graphs())
def test_crossings_are_counted_and_never_made_more(given_graph):
    graph = layered(*given_graph)
    below = below_of(graph)
    counted = 0
    for upper, lower in pairwise(graph.layers):
        positions = {item: position for position, item in enumerate((*upper, *lower))}
        pairs = [(positions[item], positions[end]) for item in upper for end in below.get(item, ())]
        counted += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(pairs, 2))
    assert crossings(graph.layers, below) == counted
    better = ordered(graph)
    assert crossings(better, below) <= counted
    assert [sorted(layer) for layer in better] == [sorted(layer) for layer in graph.layers]


def test_two_links_that_cross_are_uncrossed():
    arcs = [Arc(source=0, target=3), Arc(source=1, target=2)]
    graph = layered([BOX] * 4, arcs)
    assert crossings(ordered(graph), below_of(graph)) == 0


numbers = st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10)), min_size=1, max_size=12)


@settings(deadline=None)
@given(numbers, st.randoms(use_true_random=False))
def test_ascending_numbers_are_the_nearest_ones(weighted, random):
    values, weights = zip(*weighted, strict=True)
    found = ascending(values, weights)
    assert all(one <= other + 1e-9 for one, other in pairwise(found))

    def cost(given):
        return sum(w * (x - v) ** 2 for v, w, x in zip(values, weights, given, strict=True))

    for _ in range(5):
        other = sorted(one + random.uniform(-1, 1) for one in found)
        assert cost(found) <= cost(other) + 1e-6


def test_parameters_and_what_is_made_of_them_alone_stand_near_their_use():
    # A chain of four, and a projection of two parameters that its last one uses.
    arcs = [Arc(source=n, target=n + 1) for n in range(3)]
    arcs += [Arc(source=4, target=6), Arc(source=5, target=6), Arc(source=6, target=3)]
    graph = layered([BOX] * 7, arcs)
    layer = {item: position for position, items in enumerate(graph.layers) for item in items}
    assert [layer[n] for n in (3, 4, 5, 6)] == [3, 1, 1, 2]
