"""Where a job in Python is and when it is called: its agent, the trees that this one is in, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from elf.job.program.host import Host, JobError
from elf.job.spec import app_id


class Placed:
    """What a class of jobs may ask about its place."""

    trees: ClassVar[int | Sequence[str]]
    name: str
    creator: str
    _host: Host

    @property
    def app_id(self) -> bytes:
        """The app id of this job: 16 bytes.

        Example:
            >>> len(two_agents(Popular)[0].app_id)
            16
        """
        return app_id(self.name, self.creator)

    @property
    def me(self) -> str:
        """The address of this agent, ``"host:port"``.

        Example:
            >>> [job.me for job in two_agents(Popular)]
            ['web-1:7071', 'web-2:7071']
        """
        return self._host.place().me

    @property
    def is_root(self) -> bool:
        """Whether this is the job's master, and not the job of an agent.

        Example:
            >>> [job.is_root for job in two_agents(Popular)]
            [True, False]
        """
        return self._host.place().root

    @property
    def parent(self) -> str | None:
        """The address of the agent above this one in the job's tree. What is sent to the agent with the
        master the master gets. It is above the job of its own agent, too.

        None for the master, and on agents until they have a new parent after theirs died.

        Example:
            >>> [job.parent for job in two_agents(Popular)]
            [None, 'web-1:7071']
        """
        return self._host.place().parent or None

    @property
    def tree(self) -> int | str:
        """The number or the name of a tree of this job: at a master its own; on an agent that by which a
        slice or a multicast has come, and else the first. ``parent`` and ``children`` are of this tree.

        Example:
            >>> [job.tree for job in two_agents(Popular)]
            [0, 0]
        """
        place = self._host.place().tree
        return place if isinstance(self.trees, int) else self.trees[place]

    def parent_in(self, tree: int | str) -> str | None:
        """The agent above this one in one of the job's trees.

        Args:
            tree (int | str): the tree's number or name.

        Returns:
            str | None: its address; None as ``parent``.

        Raises:
            JobError: if there is no such tree.

        Example:
            >>> [job.parent_in(0) for job in two_agents(Popular)]
            [None, 'web-1:7071']
        """
        index, place = self._place_of(tree), self._host.place()
        return (place.parents[index] if place.parents else place.parent) or None

    def children_in(self, tree: int | str) -> tuple[str, ...]:
        """The agents below this one in one of the job's trees; a master has some in its own only.

        Args:
            tree (int | str): the tree's number or name.

        Returns:
            tuple[str, ...]: as ``children``.

        Raises:
            JobError: if there is no such tree.

        Example:
            >>> [job.children_in(0) for job in two_agents(Popular)]
            [('web-2:7071',), ()]
        """
        index, place = self._place_of(tree), self._host.place()
        if place.below:
            return place.below[index]
        return place.children if index == place.tree else ()

    def root_of(self, tree: int | str) -> str | None:
        """The agent with the master of one of several trees. What another master sends there up that tree
        (``send_to`` with ``tree=``) its master gets.

        Args:
            tree (int | str): the tree's number or name.

        Returns:
            str | None: its address; None before the master is there, and for a job with one tree.

        Raises:
            JobError: if there is no such tree.

        Example:
            >>> two_agents(Popular)[0].root_of(0) is None
            True
        """
        index, roots = self._place_of(tree), self._host.place().roots
        return (roots[index] if roots else "") or None

    def _place_of(self, tree: int | str) -> int:
        """The place of a tree among the job's."""
        trees = range(self.trees) if isinstance(self.trees, int) else list(self.trees)
        if tree not in trees:
            raise JobError(f"there is no tree {tree} here; trees: {', '.join(map(str, trees))}")
        return trees.index(tree)  # type: ignore[arg-type]

    @property
    def children(self) -> tuple[str, ...]:
        """The addresses of the agents below this one in the job's tree: at most 16, and for the master that
        of its own agent.

        Example:
            >>> [job.children for job in two_agents(Popular)]
            [('web-2:7071',), ()]
        """
        return self._host.place().children

    @property
    def has_children(self) -> bool:
        """Whether there are agents below this one.

        Example:
            >>> [job.has_children for job in two_agents(Popular)]
            [True, False]
        """
        return bool(self.children)

    @property
    def now(self) -> float:
        """When this callback was called, in seconds since the epoch. It stays the same until it returns.

        Example:
            >>> two_agents(Popular)[0].now
            1767225600.0
        """
        return self._host.place().now_ms / 1000
