"""Graph algorithms in plain Python: slow, obvious, and sharing nothing with ``elf.job.graphs``."""

from __future__ import annotations

import math
from collections import defaultdict

from elf.ql.graphs import DAMPING

Edge = tuple[str, str]


def components(pairs: set[Edge]) -> set[tuple[str, int]]:
    next_to = defaultdict[str, set[str]](set)
    for one, other in pairs:
        next_to[one].add(other)
        next_to[other].add(one)
    found, seen = set[tuple[str, int]](), set[str]()
    for vertex in sorted(next_to):
        if vertex in seen:
            continue
        among, todo = {vertex}, [vertex]
        while todo:
            new = next_to[todo.pop()] - among
            among |= new
            todo += new
        seen |= among
        found.add((vertex, len(among)))
    return found


def distances(pairs: set[Edge], source: str) -> dict[str, float]:
    out = defaultdict[str, set[str]](set)
    for one, other in pairs:
        out[one].add(other)
    if source not in {vertex for pair in pairs for vertex in pair}:
        return {}
    found, reached = {source: 0.0}, [source]
    for vertex in reached:
        for other in sorted(out[vertex] - found.keys()):
            found[other] = found[vertex] + 1.0
            reached.append(other)
    return found


def ranks(pairs: set[Edge], iterations: int) -> dict[str, float]:
    vertices = {vertex for pair in pairs for vertex in pair}
    out, count = defaultdict[str, list[str]](list), len(vertices)
    for one, other in pairs:
        out[one].append(other)
    now = dict.fromkeys(vertices, 1 / count)
    for _ in range(iterations):
        lost = math.fsum(now[vertex] for vertex in vertices if vertex not in out)
        next_ = dict.fromkeys(vertices, (1 - DAMPING) / count + DAMPING * lost / count)
        for vertex, others in out.items():
            for other in others:
                next_[other] += DAMPING * now[vertex] / len(others)
        now = next_
    return now


# -- points: beginnings of edges, with how many these are, and the sum of numbers of their ends --------------


def number_of(vertex: str) -> int | None:
    number = int(vertex[1:])
    return None if number % 7 == 3 else number * number


def clusters(edges: list[Edge], many: int, rounds: int) -> dict[str, tuple[str, float]]:
    """By point, its cluster and how far it is from its centre: Lloyd's algorithm."""
    sums: dict[str, list[float | None]] = {}
    for one, other in edges:
        point = sums.setdefault(one, [0.0, None])
        point[0] = (point[0] or 0.0) + 1
        if (number := number_of(other)) is not None:
            point[1] = (point[1] or 0.0) + number
    names = sorted(one for one, point in sums.items() if None not in point)
    columns = [_evened([sums[one][place] or 0.0 for one in names]) for place in (0, 1)]
    points = list(zip(*columns, strict=True))
    if not points:
        return {}
    centres = [max(points, key=lambda one: _square(one, (0.0, 0.0)))]
    while len(centres) < many:
        far = max(points, key=lambda one: min(_square(one, centre) for centre in centres))
        if far in centres:
            break
        centres.append(far)
    labels = _labels(points, centres)
    for _ in range(rounds):
        for label in {*labels}:
            own = [point for point, one in zip(points, labels, strict=True) if one == label]
            centres[label] = (
                math.fsum(x for x, _ in own) / len(own),
                math.fsum(y for _, y in own) / len(own),
            )
        before, labels = labels, _labels(points, centres)
        if before == labels:
            break
    first = dict(zip(reversed(labels), reversed(names), strict=True))
    apart = [math.dist(point, centres[label]) for point, label in zip(points, labels, strict=True)]
    return {one: (first[label], far) for one, label, far in zip(names, labels, apart, strict=True)}


def _evened(numbers: list[float]) -> list[float]:
    mean = math.fsum(numbers) / max(len(numbers), 1)
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in numbers) / max(len(numbers), 1)) or 1.0
    return [(one - mean) / spread for one in numbers]


def _square(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _labels(points: list[tuple[float, ...]], centres: list[tuple[float, ...]]) -> list[int]:
    places = range(len(centres))
    return [min(places, key=lambda place: _square(point, centres[place])) for point in points]
