"""The oracle of ``elf sim chaos`` is worth something: each planted bug is seen, and nothing without it.

Each has a storm in which it matters. A storm is tried with some seeds; the first that sees the bug is enough.
"""

from __future__ import annotations

import os

import pytest

from lab.chaos.story import play
from tests.chaos import plants
from tests.chaos.plants import Plant
from tests.support import storms
from tests.support.storms import Storm, schedule

TRIES = 6
PEACE = int(os.environ.get("ELF_TEST_SEEDS", "0"))
"""Seeds with which each storm is also run without the bug."""


PLANTS: dict[Plant, Storm] = {
    plants.rollup.merges_what_overlaps: storms.doubled,
    plants.names.counts_by_place: storms.leaving,
    plants.checkpoints.sends_before_the_checkpoint: storms.crashes,
    plants.checkpoints.forgets_open_panes: storms.crashes,
    plants.checkpoints.keeps_one_position: storms.slow_crashes,
    plants.checkpoints.answers_with_a_chunk_queued: storms.slow_create,
    plants.commits.commits_before_a_majority: storms.unheard,
    plants.rollup.has_one_quota: storms.dead_leader,
    plants.stragglers.revises_what_was_dropped: storms.stragglers,
    plants.stragglers.decides_for_each_range: storms.spread,
    plants.stragglers.forgets_what_was_dropped: storms.stragglers,
    plants.stragglers.drops_open_panes_unseen: storms.lagging,
    plants.stragglers.drops_too_much: storms.lagging,
    plants.stragglers.does_not_wait_for_the_dead: storms.dead,
    plants.windows.skips_what_got_lost: storms.lossy,
    plants.stragglers.is_always_sure: storms.fashions,
    plants.stragglers.forgets_what_was_left_out: storms.fashions,
    plants.replicas.reissues_as_its_own: storms.gone,
    plants.replicas.forgets_replicas_early: storms.gone,
    plants.replicas.appoints_no_proxy: storms.gone,
    plants.replicas.holds_a_mirrors_piece_beside: storms.behind,
    plants.replicas.takes_main_snapshots_beside_parts: storms.gone_eagerly,
    plants.replicas.forgets_parts_of_what_is_covered: storms.gone_eagerly,
    plants.replicas.offers_no_open_parts: storms.gone_eagerly,
    plants.replicas.begins_without_open_parts: storms.gone_eagerly,
    plants.replicas.forgets_parts_of_open_panes: storms.stuck_eagerly,
    plants.windows.takes_any_window_for_its_own: storms.equal,
    plants.versions.revises_what_is_reduced: storms.reduced,
    plants.names.spreads_what_belongs_together: storms.ranged,
    plants.versions.revises_what_is_staged: storms.ranged,
    plants.versions.passes_off_as_reduced: storms.reduced,
    plants.versions.says_nothing_of_a_failure: storms.reduced,
    plants.versions.merges_equal_states_once: storms.owned,
    plants.gaps.passes_over_what_is_packed: storms.kept,
    plants.gaps.reads_replicas_again: storms.cut_off,
    plants.gaps.knows_files_by_inode: storms.away,
    plants.gaps.reads_what_is_newest_first: storms.kept,
    plants.gaps.names_no_gap: storms.away,
    plants.gaps.names_gaps_where_nothing_is_gone: storms.peaceful,
    plants.checkpoints.writes_the_readers_positions: storms.slow_files,
    plants.checkpoints.takes_a_stop_for_silence: storms.stopped,
    plants.gaps.closes_windows_on_unread_files: storms.unknown,
    plants.gaps.knows_the_first_cut_only: storms.cut_away,
    plants.gaps.forgets_gaps_on_the_way: storms.away,
    plants.gaps.keeps_gaps_from_windows: storms.away,
    plants.past.forgets_what_it_has_read: storms.begun_before_and_killed,
    plants.past.counts_the_line_at_x_twice: storms.begun_before,
    plants.past.misses_what_came_meanwhile: storms.begun_before,
    plants.past.seals_what_is_not_read: storms.begun_before,
    plants.checkpoints.forgets_the_weight_of_what_waits: storms.over_budget,
    plants.checkpoints.maps_what_waits_at_the_next_weight: storms.over_budget,
    plants.checkpoints.says_nothing_of_what_is_left_out: storms.over_budget,
    plants.checkpoints.leaves_out_rows_of_who_has_not_agreed: storms.overloaded,
    plants.checkpoints.forgets_what_is_postponed: storms.overloaded,
    plants.checkpoints.seals_before_what_is_postponed: storms.overloaded,
    plants.checkpoints.says_nothing_of_what_is_cut_short: storms.overloaded,
    plants.windows.saves_before_it_is_delivered: storms.outside,
    plants.windows.forgets_what_an_alert_remembers: storms.outside_late,
    plants.windows.lets_older_windows_win: storms.tabled_late,
    plants.windows.reads_tables_of_any_moment: storms.tabled,
    plants.windows.reads_tables_before_they_have_all: storms.rekeyed,
    plants.windows.copies_rows_while_that_is_paused: storms.held,
    plants.windows.asks_for_rows_while_that_is_paused: storms.held_shards,
    plants.windows.reads_one_replica: storms.ringed,
    plants.windows.begins_replicas_without_rows: storms.ring_moved,
    plants.windows.changes_the_key_before_rows_have_come: storms.ringed,
    plants.windows.takes_rows_by_the_name_of_their_table: storms.joined,
    plants.windows.renews_whatever_has_come_meanwhile: storms.joined_slowly,
    plants.windows.says_of_rows_that_they_are_older: storms.joined,
    plants.windows.forgets_which_rows_open_panes_have: storms.crashes,
    plants.windows.takes_late_rows_for_counted: storms.unknown,
    plants.programs.sends_slices_at_once: storms.counting,
    plants.programs.forgets_slices: storms.counting,
    plants.programs.takes_slices_again: storms.counting,
    plants.programs.says_at_once_that_slices_are_kept: storms.counting,
    plants.programs.forgets_which_rows_it_has: storms.counting,
    plants.programs.keeps_no_rows_for_jobs: storms.counting,
    plants.commits.lets_two_lead: storms.moving,
    plants.commits.holds_for_ever: storms.moving,
    plants.programs.begins_processes_without_calls: storms.counting,
    plants.programs.tells_panes_from_anywhere: storms.counting,
    plants.programs.keeps_masters_to_itself: storms.master_gone,
    plants.programs.masters_begin_anew: storms.master_gone,
    plants.programs.forgets_what_was_asked_for: storms.counting,
    plants.programs.feeds_back_to_all: storms.counting,
    plants.programs.spreads_groups_anyhow: storms.spread_counting,
    plants.programs.sends_all_to_the_first_master: storms.spread_counting,
    plants.rollup.merges_what_a_reader_needs_apart: storms.bordered,
    plants.rollup.commits_units_pane_by_pane: storms.alone_over_panes,
    plants.rollup.waits_for_a_unit_for_ever: storms.bounded_over_panes,
}


FIRST: dict[Plant, int] = {
    plants.windows.begins_replicas_without_rows: 2,
    plants.windows.copies_rows_while_that_is_paused: 2,
    plants.commits.lets_two_lead: 2,
    plants.commits.holds_for_ever: 29,
    plants.rollup.merges_what_overlaps: 2,
    plants.rollup.waits_for_a_unit_for_ever: 2,
    plants.stragglers.is_always_sure: 39,
    plants.stragglers.forgets_what_was_left_out: 5,
    plants.past.forgets_what_it_has_read: 7,
    plants.replicas.holds_a_mirrors_piece_beside: 3,
    plants.replicas.forgets_parts_of_open_panes: 6,
    plants.versions.revises_what_is_reduced: 7,
    plants.stragglers.forgets_what_was_dropped: 5,
    plants.stragglers.revises_what_was_dropped: 5,
    plants.windows.takes_any_window_for_its_own: 6,
    plants.windows.skips_what_got_lost: 3,
    plants.stragglers.drops_too_much: 2,
}
"""What is seen at once costs least."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first = FIRST.get(plant, 1)
    for seed in range(first, first + TRIES):
        if play(schedule(PLANTS[plant], seed)).findings:
            return
    pytest.fail(f"no storm of {TRIES} saw it: {plant.__doc__}")


@pytest.mark.parametrize("storm", dict.fromkeys(PLANTS.values()), ids=lambda storm: storm.__name__)
def test_without_a_bug_there_is_nothing_to_see(storm: Storm) -> None:
    for seed in range(1, PEACE + 1):
        assert play(schedule(storm, seed)).findings == ()
