"""The theorem about SRT, by enumeration of small cases.

The text of the paper has lost the theorem itself. What stands here is reconstructed from the words around it:
of one victim job, k tasks have to give way; all of them are resumed at the same moment; nothing is done
twice, and no attempt is speculative. Then no choice of k tasks ends the job sooner than the k with the
shortest remaining time. For a job that is done at max(max(kept), resumed + max(evicted)), where times are
remaining times: whatever is evicted in place of one of the k shortest is longer, and so is the second term;
and the first is no more than the longest task, which is in one of the two terms in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

from spark_backend.queue.policies import TaskEviction, victim_tasks


def completion(remaining: Sequence[int], evicted: Sequence[int], resumed: int) -> int:
    """When a job is done, of which the tasks at these places are suspended now and resumed then."""
    return max(length + (resumed if place in evicted else 0) for place, length in enumerate(remaining))


def counterexamples(
    tasks: int, lengths: int, resumes: Sequence[int], policy: TaskEviction
) -> tuple[int, int]:
    """Compare a policy with every other choice, in all cases of so many tasks of lengths 1 … ``lengths``.

    Returns:
        tuple[int, int]: the cases, and those in which another choice ends the job sooner.
    """
    cases = worse = 0
    for remaining in combinations_with_replacement(range(1, lengths + 1), tasks):
        named = {str(place): float(length) for place, length in enumerate(remaining)}
        for count in range(1, tasks + 1):
            chosen = [int(name) for name in victim_tasks(policy, named, count, lambda n: 0)]
            for resumed in resumes:
                best = min(completion(remaining, one, resumed) for one in combinations(range(tasks), count))
                cases += 1
                worse += completion(remaining, chosen, resumed) > best
    return cases, worse


def srt(seed: int) -> dict[str, object]:
    """All cases of up to 6 tasks of lengths 1 to 6, for each policy."""
    found: dict[str, object] = {}
    for policy in (TaskEviction.SRT, TaskEviction.LRT):
        sums = [counterexamples(tasks, 6, (1, 3, 8), policy) for tasks in range(1, 7)]
        cases, worse = (sum(column) for column in zip(*sums, strict=True))
        found[policy] = {"cases": cases, "worse_than_best": worse}
    return found
