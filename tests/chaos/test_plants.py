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
    plants.merges_what_overlaps: storms.doubled,
    plants.counts_by_place: storms.leaving,
    plants.sends_before_the_checkpoint: storms.crashes,
    plants.forgets_open_panes: storms.crashes,
    plants.keeps_one_position: storms.slow_crashes,
    plants.answers_with_a_chunk_queued: storms.slow_create,
    plants.commits_before_a_majority: storms.unheard,
    plants.has_one_quota: storms.dead_leader,
    plants.revises_what_was_dropped: storms.stragglers,
    plants.decides_for_each_range: storms.spread,
    plants.forgets_what_was_dropped: storms.stragglers,
    plants.drops_open_panes_unseen: storms.lagging,
    plants.drops_too_much: storms.lagging,
    plants.does_not_wait_for_the_dead: storms.dead,
    plants.skips_what_got_lost: storms.lossy,
    plants.is_always_sure: storms.fashions,
    plants.forgets_what_was_left_out: storms.fashions,
    plants.reissues_as_its_own: storms.gone,
    plants.forgets_replicas_early: storms.gone,
    plants.appoints_no_proxy: storms.gone,
    plants.holds_a_mirrors_piece_beside: storms.behind,
    plants.takes_main_snapshots_beside_parts: storms.gone_eagerly,
    plants.forgets_parts_of_what_is_covered: storms.gone_eagerly,
    plants.offers_no_open_parts: storms.gone_eagerly,
    plants.takes_any_window_for_its_own: storms.equal,
    plants.revises_what_is_reduced: storms.reduced,
    plants.spreads_what_belongs_together: storms.ranged,
    plants.revises_what_is_staged: storms.ranged,
    plants.passes_off_as_reduced: storms.reduced,
    plants.says_nothing_of_a_failure: storms.reduced,
    plants.merges_equal_states_once: storms.owned,
    plants.passes_over_what_is_packed: storms.kept,
    plants.reads_replicas_again: storms.cut_off,
    plants.knows_files_by_inode: storms.away,
    plants.reads_what_is_newest_first: storms.kept,
    plants.names_no_gap: storms.away,
    plants.names_gaps_where_nothing_is_gone: storms.peaceful,
    plants.writes_the_readers_positions: storms.slow_files,
    plants.takes_a_stop_for_silence: storms.stopped,
    plants.closes_windows_on_unread_files: storms.unknown,
    plants.knows_the_first_cut_only: storms.cut_away,
    plants.forgets_gaps_on_the_way: storms.away,
    plants.keeps_gaps_from_windows: storms.away,
    plants.forgets_what_it_has_read: storms.begun_before_and_killed,
    plants.counts_the_line_at_x_twice: storms.begun_before,
    plants.misses_what_came_meanwhile: storms.begun_before,
    plants.seals_what_is_not_read: storms.begun_before,
    plants.forgets_the_weight_of_what_waits: storms.over_budget,
    plants.maps_what_waits_at_the_next_weight: storms.over_budget,
    plants.says_nothing_of_what_is_left_out: storms.over_budget,
    plants.saves_before_it_is_delivered: storms.outside,
    plants.forgets_what_an_alert_remembers: storms.outside_late,
    plants.lets_older_windows_win: storms.tabled_late,
    plants.reads_tables_of_any_moment: storms.tabled,
    plants.reads_tables_before_they_have_all: storms.rekeyed,
    plants.forgets_which_rows_open_panes_have: storms.crashes,
    plants.takes_late_rows_for_counted: storms.unknown,
    plants.sends_slices_at_once: storms.counting,
    plants.forgets_slices: storms.counting,
    plants.takes_slices_again: storms.counting,
    plants.says_at_once_that_slices_are_kept: storms.counting,
    plants.forgets_which_rows_it_has: storms.counting,
    plants.keeps_no_rows_for_jobs: storms.counting,
    plants.lets_two_lead: storms.moving,
    plants.holds_for_ever: storms.moving,
    plants.begins_processes_without_calls: storms.counting,
    plants.tells_panes_from_anywhere: storms.counting,
    plants.keeps_masters_to_itself: storms.master_gone,
    plants.masters_begin_anew: storms.master_gone,
    plants.forgets_what_was_asked_for: storms.counting,
    plants.feeds_back_to_all: storms.counting,
    plants.spreads_groups_anyhow: storms.spread_counting,
    plants.sends_all_to_the_first_master: storms.spread_counting,
    plants.merges_what_a_reader_needs_apart: storms.bordered,
    plants.commits_units_pane_by_pane: storms.alone_over_panes,
}


FIRST: dict[Plant, int] = {
    plants.lets_two_lead: 2,
    plants.holds_for_ever: 7,
    plants.merges_what_overlaps: 2,
    plants.is_always_sure: 5,
    plants.forgets_what_was_left_out: 5,
    plants.forgets_what_it_has_read: 7,
    plants.holds_a_mirrors_piece_beside: 3,
    plants.revises_what_is_reduced: 7,
    plants.forgets_what_was_dropped: 5,
    plants.revises_what_was_dropped: 5,
    plants.takes_any_window_for_its_own: 6,
    plants.skips_what_got_lost: 3,
    plants.drops_too_much: 2,
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
