"""WITH GRAPH in Spark (``elf.ql.graphs``): what masters do with scipy, in plain DataFrames.

All windows go through an algorithm together: each row has its window in the column ``w``. Iterations are
joins; after each one, or some, the rows are kept (``localCheckpoint``), so that plans do not grow. Components
and paths are those of the masters exactly; ranks, and distances of kmeans, to the last digits of sums in
another order (``spark_backend.compare`` allows one part in 10¹²). There is no bound on vertices here.

It must never collect rows: a graph is as large as the archive has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from elf.ql.graphs import DAMPING, Graph, GraphStep
from elf.ql.plan import Plan
from elf.ql.render import TYPES

KEPT: Final = 5
"""Iterations of PageRank between two checkpoints."""
_WINDOW: Final = "w"


def register(
    spark: SparkSession, plan: Plan, query: Callable[[str], str] = str, *, explain: bool = False
) -> None:
    """Make the views of vertices that the query of a plan reads; ``query``: what is done to SQL before it is
    asked. To ``explain``: views of the edges instead, in the columns of the vertices."""
    for step in plan.all_spark_graphs:
        edges = spark.sql(query(step.sql))
        made = _unmade(step, edges) if explain else vertices(step, edges)
        made.createOrReplaceTempView(step.view)


def _unmade(step: GraphStep, edges: DataFrame) -> DataFrame:
    graph = step.graph
    columns = zip(graph.names, graph.kinds, strict=True)
    values = [F.col(graph.inputs[0]).cast(TYPES["spark"][kind]).alias(name) for name, kind in columns]
    return edges.select(*step.bounds, *values)


def vertices(step: GraphStep, edges: DataFrame) -> DataFrame:
    """What a step makes of the edges of some windows."""
    graph = step.graph
    whole = F.struct(*step.bounds) if step.bounds else F.lit(0)
    rows = edges.select(whole.alias(_WINDOW), *graph.inputs)
    made = _MADE[graph.algorithm](graph, rows)
    bounds = [F.col(f"{_WINDOW}.{name}").alias(name) for name in step.bounds]
    return made.select(*bounds, *graph.names)


def _kept(rows: DataFrame) -> DataFrame:
    return rows.localCheckpoint(eager=True)


def _edges(graph: Graph, rows: DataFrame) -> DataFrame:
    rows = rows.where(F.col("src").isNotNull() & F.col("dst").isNotNull())
    if not graph.weighted:
        return _kept(rows.withColumn("weight", F.lit(1.0)))
    rows = rows.withColumn("weight", F.col("weight").cast("double"))
    return _kept(rows.where((F.col("weight") > 0) & (F.col("weight") < F.lit(float("inf")))))


def _vertices(edges: DataFrame) -> DataFrame:
    """Of each window."""
    ends = [edges.select(_WINDOW, F.col(end).alias("vertex")) for end in ("src", "dst")]
    return ends[0].unionByName(ends[1]).distinct()


# -- components: large stars and small stars in turn, until nothing changes ----------------------------------


def _components(graph: Graph, rows: DataFrame) -> DataFrame:
    edges = _edges(graph, rows)
    every = _kept(_vertices(edges))
    stars = _kept(edges.where("src <> dst").select(_WINDOW, F.col("src").alias("u"), F.col("dst").alias("v")))
    while True:
        before, stars = stars, _kept(_small(_large(stars)))
        if stars.exceptAll(before).isEmpty() and before.exceptAll(stars).isEmpty():
            break
    named = stars.select(_WINDOW, F.col("u").alias("vertex"), F.col("v").alias("least"))
    named = every.join(named, [_WINDOW, "vertex"], "left")
    named = named.withColumn("component", F.coalesce("least", "vertex"))
    sizes = named.groupBy(_WINDOW, "component").agg(F.count("*").alias("size"))
    return named.join(sizes, [_WINDOW, "component"])


def _large(stars: DataFrame) -> DataFrame:
    """Of each vertex u the greater neighbours are tied to the least of its neighbours and itself."""
    both = stars.unionByName(stars.select(_WINDOW, F.col("v").alias("u"), F.col("u").alias("v")))
    least = both.groupBy(_WINDOW, "u").agg(F.least(F.min("v"), F.first("u")).alias("least"))
    tied = both.join(least, [_WINDOW, "u"]).where("v > u")
    return tied.select(_WINDOW, F.col("v").alias("u"), F.col("least").alias("v")).distinct()


def _small(stars: DataFrame) -> DataFrame:
    """Of each vertex u the lesser neighbours, and itself, are tied to the least of them."""
    down = stars.select(_WINDOW, F.greatest("u", "v").alias("u"), F.least("u", "v").alias("v"))
    least = down.groupBy(_WINDOW, "u").agg(F.min("v").alias("least"))
    others = (
        down.join(least, [_WINDOW, "u"]).where("v <> least").select(_WINDOW, F.col("v").alias("u"), "least")
    )
    own = least.select(_WINDOW, "u", "least")
    return others.unionByName(own).withColumnRenamed("least", "v").distinct()


# -- ranks ---------------------------------------------------------------------------------------------------


def _pagerank(graph: Graph, rows: DataFrame) -> DataFrame:
    edges = _edges(graph, rows)
    out = edges.groupBy(_WINDOW, "src").agg(F.sum("weight").alias("out"))
    shares = _kept(edges.join(out, [_WINDOW, "src"]).withColumn("share", F.col("weight") / F.col("out")))
    ends = out.select(_WINDOW, F.col("src").alias("vertex"), F.lit(False).alias("ends"))
    every = _vertices(edges).join(ends, [_WINDOW, "vertex"], "left").na.fill(True, ["ends"])
    sizes = every.groupBy(_WINDOW).agg(F.count("*").alias("size"))
    every = _kept(every.join(sizes, _WINDOW))
    ranks = every.withColumn("rank", 1 / F.col("size"))
    for number in range(1, graph.iterations + 1):
        ranks = _iterated(every, shares, ranks)
        if number % KEPT == 0 or number == graph.iterations:
            ranks = _kept(ranks)
    return ranks


def _iterated(every: DataFrame, shares: DataFrame, ranks: DataFrame) -> DataFrame:
    """What has no edge out gives its rank to all."""
    lost = ranks.groupBy(_WINDOW).agg(
        F.sum(F.when(F.col("ends"), F.col("rank")).otherwise(0.0)).alias("lost")
    )
    given = (
        shares.join(ranks.select(_WINDOW, F.col("vertex").alias("src"), "rank"), [_WINDOW, "src"])
        .groupBy(_WINDOW, F.col("dst").alias("vertex"))
        .agg(F.sum(F.col("rank") * F.col("share")).alias("given"))
    )
    both = every.join(given, [_WINDOW, "vertex"], "left").join(lost, _WINDOW)
    base = (1 - DAMPING + DAMPING * F.col("lost")) / F.col("size")
    rank = DAMPING * F.coalesce("given", F.lit(0.0)) + base
    return both.select(_WINDOW, "vertex", "ends", "size", rank.alias("rank"))


# -- paths: those that became shorter go one edge further, until there are none ------------------------------


def _paths(graph: Graph, rows: DataFrame) -> DataFrame:
    edges = _edges(graph, rows)
    if not graph.weighted:
        edges = edges.withColumn("weight", F.lit(1).cast("bigint"))
    by = [_WINDOW, "source", "vertex"]
    zero = F.lit(0.0 if graph.weighted else 0).cast("double" if graph.weighted else "bigint")
    found = _vertices(edges).where(F.col("vertex").isin(*graph.sources))
    found = _kept(found.select(_WINDOW, F.col("vertex").alias("source"), "vertex", zero.alias("distance")))
    shorter = found
    while not shorter.isEmpty():
        further = (
            shorter.withColumnRenamed("vertex", "src")
            .join(edges, [_WINDOW, "src"])
            .groupBy(_WINDOW, "source", F.col("dst").alias("vertex"))
            .agg(F.min(F.col("distance") + F.col("weight")).alias("way"))
        )
        both = found.join(further, by, "full")
        is_shorter = F.col("way").isNotNull() & (
            F.col("distance").isNull() | (F.col("way") < F.col("distance"))
        )
        both = _kept(
            both.withColumn("is_shorter", is_shorter).withColumn("distance", F.least("distance", "way"))
        )
        found = both.select(*by, "distance")
        shorter = both.where("is_shorter").select(*by, "distance")
    return found


# -- kmeans --------------------------------------------------------------------------------------------------


def _kmeans(graph: Graph, rows: DataFrame) -> DataFrame:
    names = list(graph.inputs[1:])
    points = _scaled(rows, names)
    centres = _kept(_centres(points, names, graph.clusters))
    labels = _kept(_labelled(points, centres, names))
    for _ in range(graph.iterations):
        means = labels.groupBy(_WINDOW, "c").agg(*(F.avg(name).alias(f"m_{name}") for name in names))
        moved = centres.join(means, [_WINDOW, "c"], "left")
        centres = _kept(
            moved.select(
                _WINDOW, "c", *(F.coalesce(f"m_{name}", f"c_{name}").alias(f"c_{name}") for name in names)
            )
        )
        before, labels = labels, _kept(_labelled(points, centres, names))
        same = before.select(_WINDOW, "vertex", F.col("c").alias("was"))
        if labels.join(same, [_WINDOW, "vertex"]).where("c <> was").isEmpty():
            break
    least = labels.groupBy(_WINDOW, "c").agg(F.min("vertex").alias("cluster"))
    return labels.join(least, [_WINDOW, "c"]).withColumn("distance", F.sqrt("apart"))


def _scaled(rows: DataFrame, names: list[str]) -> DataFrame:
    """Points with coordinates of mean 0 and deviation 1 in their window."""
    numbers = [F.col(name).cast("double").alias(name) for name in names]
    rows = rows.select(_WINDOW, "vertex", *numbers).where(F.col("vertex").isNotNull())
    for name in names:
        rows = rows.where(F.abs(name) < F.lit(float("inf")))
    about = [
        part
        for name in names
        for part in (F.avg(name).alias(f"a_{name}"), F.stddev_pop(name).alias(f"s_{name}"))
    ]
    both = rows.join(rows.groupBy(_WINDOW).agg(*about), _WINDOW)
    scaled = [
        (
            (F.col(name) - F.col(f"a_{name}"))
            / F.when(F.col(f"s_{name}") > 0, F.col(f"s_{name}")).otherwise(1.0)
        ).alias(name)
        for name in names
    ]
    return _kept(both.select(_WINDOW, "vertex", *scaled))


def _centres(points: DataFrame, names: list[str], clusters: int) -> DataFrame:
    """The first ones: each the farthest from those before; of equals the least vertex."""
    found: list[DataFrame] = []
    apart = points.withColumn(
        "apart", reduce(lambda one, other: one + other, [F.col(n) * F.col(n) for n in names])
    )
    for number in range(clusters):
        wanted = apart if not number else apart.where("apart > 0")
        far = F.min(F.struct((-F.col("apart")).alias("d"), "vertex", *names)).alias("far")
        chosen = [F.col(f"far.{name}").alias(f"c_{name}") for name in names]
        one = _kept(wanted.groupBy(_WINDOW).agg(far).select(_WINDOW, F.lit(number).alias("c"), *chosen))
        found.append(one)
        now = _square(names)
        nearer = now if not number else F.least(F.col("apart"), F.coalesce(now, F.col("apart")))
        apart = _kept(
            apart.join(one, _WINDOW, "left").select(_WINDOW, "vertex", *names, nearer.alias("apart"))
        )
    return reduce(DataFrame.unionByName, found)


def _square(names: list[str]) -> Column:
    """Of how far a point is from a centre."""
    parts = [(F.col(name) - F.col(f"c_{name}")) * (F.col(name) - F.col(f"c_{name}")) for name in names]
    return reduce(lambda one, other: one + other, parts)


def _labelled(points: DataFrame, centres: DataFrame, names: list[str]) -> DataFrame:
    """Points with their nearest centre."""
    nearest = F.min(F.struct(_square(names).alias("apart"), "c")).alias("nearest")
    whole = [F.first(name).alias(name) for name in names]
    found = points.join(centres, _WINDOW).groupBy(_WINDOW, "vertex").agg(nearest, *whole)
    return found.select(
        _WINDOW, "vertex", *names, F.col("nearest.c").alias("c"), F.col("nearest.apart").alias("apart")
    )


_MADE: Final[dict[str, Callable[[Graph, DataFrame], DataFrame]]] = {
    "components": _components,
    "pagerank": _pagerank,
    "sssp": _paths,
    "mssp": _paths,
    "kmeans": _kmeans,
}
