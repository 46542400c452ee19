//! The local scheduler against textbook stride scheduling, and what it promises.

use proptest::prelude::*;

use super::*;
use crate::decay::Decay;

const QUANTUM_NS: u64 = 2_000_000;
const ALONE: Seat = Seat {
    worker: 0,
    workers: 1,
};

fn word(id: u64, tier: Tier, weight: u32) -> GroupWord {
    GroupWord {
        id,
        tier,
        weight: Weight::try_from(weight).unwrap(),
        is_static: false,
    }
}

fn scheduler(policy: Policy, slots: usize) -> LocalScheduler {
    LocalScheduler::new(policy, ALONE, slots, QUANTUM_NS)
}

/// Stride scheduling as Section 2.1 has it, in exact arithmetic: passes are
/// fractions over the least common multiple of the priorities.
struct Textbook {
    strides: Vec<u128>,
    passes: Vec<u128>,
}

impl Textbook {
    fn new(weights: &[u32]) -> Textbook {
        // Any common multiple serves.
        let multiple: u128 = weights.iter().map(|&weight| u128::from(weight)).product();
        Textbook {
            strides: weights
                .iter()
                .map(|&weight| multiple / u128::from(weight))
                .collect(),
            passes: vec![0; weights.len()],
        }
    }

    fn choose(&self) -> usize {
        let least = self.passes.iter().min().unwrap();
        self.passes.iter().position(|pass| pass == least).unwrap()
    }

    fn charge(&mut self, task: usize, ns: u64) {
        self.passes[task] += self.strides[task] * u128::from(ns);
    }

    /// Whether choosing `task` is as good as choosing the least: exactly, or by
    /// less than rounding can tell.
    fn agrees(&self, task: usize) -> bool {
        let least = *self.passes.iter().min().unwrap() as f64;
        self.passes[task] as f64 <= least * (1.0 + 1e-9)
    }
}

proptest! {
    /// One worker is textbook stride scheduling, for any weights and lengths.
    #[test]
    fn one_worker_is_textbook_stride(
        weights in prop::collection::vec(1u32..=10_000, 1..6),
        lengths in prop::collection::vec(1u64..3 * QUANTUM_NS, 1..300),
    ) {
        let mut local = scheduler(Policy::Fair, weights.len());
        for (slot, &weight) in weights.iter().enumerate() {
            local.admit(slot, word(slot as u64 + 1, Tier::TimeSensitive, weight), 0);
        }
        let mut textbook = Textbook::new(&weights);
        for ns in lengths {
            let slot = local.choose().unwrap();
            prop_assert!(textbook.agrees(slot), "{slot}, not {}", textbook.choose());
            local.charge(slot, ns);
            textbook.charge(slot, ns);
        }
    }

    /// Nobody is ever further than one quantum from its share.
    #[test]
    fn shares_are_exact_to_a_quantum(
        weights in prop::collection::vec(1u32..=100, 2..10),
        decisions in 1usize..2000,
    ) {
        let mut local = scheduler(Policy::Fair, weights.len());
        for (slot, &weight) in weights.iter().enumerate() {
            local.admit(slot, word(slot as u64 + 1, Tier::Background, weight), 0);
        }
        let mut got = vec![0.0; weights.len()];
        let sum: u32 = weights.iter().sum();
        for done in 1..=decisions {
            let slot = local.choose().unwrap();
            got[slot] += 1.0;
            local.charge(slot, QUANTUM_NS);
            // Between any two groups: the bound of stride scheduling.
            for (a, &wa) in weights.iter().enumerate() {
                for (b, &wb) in weights.iter().enumerate() {
                    let lead = got[a] / f64::from(wa) - got[b] / f64::from(wb);
                    prop_assert!(lead <= 1.0 / f64::from(wa) + 1e-6, "{got:?}");
                }
            }
            let due = done as f64 * f64::from(weights[slot]) / f64::from(sum);
            prop_assert!(got[slot] - due <= 1.0 + 1e-6);
        }
    }

    /// L1, whatever comes and goes.
    #[test]
    fn background_waits_for_time_sensitive(
        events in prop::collection::vec((0usize..8, 0u8..4), 1..300),
        policy in 0usize..7,
    ) {
        let policy = [
            Policy::Fifo, Policy::Fair, Policy::Lottery { seed: 3 }, Policy::Balanced,
            Policy::LeastAttained(Attained::INITIAL), Policy::Tuned, Policy::Adaptive,
        ][policy];
        let mut local = scheduler(policy, 8);
        let mut active: [Option<Tier>; 8] = [None; 8];
        let mut tiers = [None; 8];
        for (number, (slot, what)) in (1..).zip(events) {
            match what {
                0 | 1 => {
                    let tier = Tier::ALL[usize::from(what)];
                    local.admit(slot, word(number, tier, 100), 0);
                    tiers[slot] = Some(tier);
                    active[slot] = Some(tier);
                }
                2 => {
                    local.disable(slot);
                    active[slot] = None;
                }
                _ => {
                    local.resume(slot);
                    active[slot] = tiers[slot];
                }
            }
            let highest = active.iter().flatten().max().copied();
            let chosen = local.choose();
            prop_assert_eq!(chosen.map(|slot| active[slot].unwrap()), highest);
            if let Some(slot) = chosen {
                local.charge(slot, QUANTUM_NS);
            }
        }
    }

    /// Doubling every length and the quantum changes no decision.
    #[test]
    fn decisions_do_not_depend_on_the_unit_of_time(
        lengths in prop::collection::vec(1u64..2 * QUANTUM_NS, 1..200),
    ) {
        let decay = Policy::Decay(Decay::new(0.8, 3).unwrap());
        let mut once = scheduler(decay, 4);
        let mut twice = LocalScheduler::new(decay, ALONE, 4, 2 * QUANTUM_NS);
        for slot in 0..4 {
            let word = word(slot as u64 + 1, Tier::TimeSensitive, 100 * (slot as u32 + 1));
            once.admit(slot, word, 0);
            twice.admit(slot, word, 0);
        }
        for ns in lengths {
            let slot = once.choose().unwrap();
            prop_assert_eq!(twice.choose(), Some(slot));
            once.charge(slot, ns);
            twice.charge(slot, 2 * ns);
        }
    }
}

/// How many of `decisions` quanta each slot gets.
fn shares(local: &mut LocalScheduler, decisions: usize) -> Vec<usize> {
    let mut got = vec![0; local.slots.len()];
    for _ in 0..decisions {
        let slot = local.choose().unwrap();
        got[slot] += 1;
        local.charge(slot, QUANTUM_NS);
    }
    got
}

/// L2: who comes late gets its share from then on, and no more.
#[test]
fn a_newcomer_starts_at_the_global_pass() {
    let mut local = scheduler(Policy::Fair, 2);
    local.admit(0, word(1, Tier::TimeSensitive, 100), 0);
    assert_eq!(shares(&mut local, 1000), [1000, 0]);
    local.admit(1, word(2, Tier::TimeSensitive, 300), 0);
    let got = shares(&mut local, 400);
    assert!((99..=101).contains(&got[0]), "{got:?}");
}

/// L3: a group pays for a long task even if it was the last of its task set, and
/// gets nothing for having been away.
#[test]
fn a_returning_group_keeps_its_debt_and_not_its_credit() {
    let mut local = scheduler(Policy::Fair, 2);
    for slot in 0..2 {
        local.admit(slot, word(slot as u64 + 1, Tier::TimeSensitive, 100), 0);
    }
    assert_eq!(local.choose(), Some(0));
    local.charge(0, 10 * QUANTUM_NS);
    local.disable(0);
    assert_eq!(shares(&mut local, 1), [0, 1]);
    local.resume(0);
    assert_eq!(shares(&mut local, 8), [0, 8]);

    local.disable(0);
    shares(&mut local, 100);
    local.resume(0);
    let got = shares(&mut local, 100);
    assert!((45..=55).contains(&got[0]), "{got:?}");
}

/// Passes stay small however long a worker runs, and nobody notices.
#[test]
fn passes_are_rebased() {
    let mut local = scheduler(Policy::Fair, 3);
    local.admit(0, word(1, Tier::Background, 1), 0);
    local.admit(1, word(2, Tier::Background, 3), 0);
    local.admit(2, word(3, Tier::TimeSensitive, 100), 0);
    local.disable(2);
    let mut got = [0u64; 2];
    for _ in 0..1_000_000 {
        let slot = local.choose().unwrap();
        got[slot] += 1;
        local.charge(slot, QUANTUM_NS);
    }
    assert!(got[0].abs_diff(250_000) <= 1, "{got:?}");
    assert!(local.slots.iter().all(|slot| slot.pass < 2.0 * REBASE));
}

/// Equation 2: a group that has received much gets the share p_min.
#[test]
fn a_long_query_yields_to_a_new_one() {
    let decay = Decay::new(0.5, 2).unwrap();
    let mut local = scheduler(Policy::Decay(decay), 2);
    local.admit(0, word(1, Tier::TimeSensitive, 100), 0);
    shares(&mut local, 100);
    local.admit(1, word(2, Tier::TimeSensitive, 100), 0);
    // In units of 1/p0, a quantum of the old group, at p_min, costs 100. The new
    // one's cost 1, 1, 1, 2, 4, 8, 16, 32, 64: nine before it is the old one's turn.
    assert_eq!(shares(&mut local, 10), [1, 9]);
    // Both at p_min in the end.
    shares(&mut local, 1000);
    let got = shares(&mut local, 1000);
    assert!(got[0].abs_diff(500) <= 1, "{got:?}");
}

/// Both kinds of custom priorities.
#[test]
fn weights_and_static_priorities_apply() {
    let decay = Decay::new(0.5, 0).unwrap();
    let mut local = scheduler(Policy::Decay(decay), 3);
    local.admit(0, word(1, Tier::TimeSensitive, 100), 0);
    local.admit(1, word(2, Tier::TimeSensitive, 200), 0);
    let fixed = GroupWord {
        is_static: true,
        ..word(3, Tier::TimeSensitive, 100)
    };
    local.admit(2, fixed, 0);
    shares(&mut local, 10_000);
    let got = shares(&mut local, 10_300);
    // p_min, 2 p_min, p0.
    assert!(
        got[0].abs_diff(100) <= 2 && got[1].abs_diff(200) <= 2,
        "{got:?}"
    );
}

/// New parameters count from each group's beginning.
#[test]
fn new_parameters_change_every_priority() {
    let mut local = scheduler(Policy::Tuned, 1);
    local.admit(0, word(1, Tier::TimeSensitive, 100), 0);
    shares(&mut local, 20);
    local.set_order(Order::Decay(Decay::new(0.5, 17).unwrap()));
    assert_eq!(local.slots[0].priority, P0 / 8.0);
    local.set_order(Order::Decay(Decay::new(0.5, 20).unwrap()));
    assert_eq!(local.slots[0].priority, P0);
}

#[test]
fn other_policies_do_what_they_say() {
    let admit_all = |local: &mut LocalScheduler| {
        // Slots are not in the order of arrival.
        for (slot, number) in [(0, 3), (1, 1), (2, 2)] {
            local.admit(slot, word(number, Tier::TimeSensitive, 100), 0);
        }
    };
    let mut fifo = scheduler(Policy::Fifo, 3);
    admit_all(&mut fifo);
    assert_eq!(shares(&mut fifo, 10), [0, 10, 0]);

    let mut las = scheduler(las(0, 0.0), 12);
    admit_all(&mut las);
    las.charge(1, 5 * QUANTUM_NS);
    las.charge(2, 2 * QUANTUM_NS);
    assert_eq!(shares(&mut las, 6)[..3], [4, 0, 2]);

    let mut lottery = scheduler(Policy::Lottery { seed: 1 }, 2);
    lottery.admit(0, word(1, Tier::TimeSensitive, 100), 0);
    lottery.admit(1, word(2, Tier::TimeSensitive, 300), 0);
    let got = shares(&mut lottery, 10_000);
    assert!((2300..=2700).contains(&got[0]), "{got:?}");

    // Four workers on three groups, then on more groups than workers.
    let chosen = |groups: usize| -> Vec<usize> {
        let choose = |worker| {
            let seat = Seat { worker, workers: 4 };
            let mut local = LocalScheduler::new(Policy::Balanced, seat, 8, QUANTUM_NS);
            for slot in 0..groups {
                local.admit(slot, word(slot as u64 + 1, Tier::TimeSensitive, 100), 0);
            }
            local.choose().unwrap()
        };
        (0..4).map(choose).collect()
    };
    assert_eq!(chosen(3), [0, 0, 1, 2]);
    assert_eq!(chosen(6), [0, 1, 2, 3]);
}

fn las(start: u32, floor: f32) -> Policy {
    Policy::LeastAttained(Attained::new(start, floor).unwrap())
}

/// What a group that wants to run has waited for, and what it may wait for at most.
#[derive(Clone, Copy)]
struct Waiting {
    since_ns: u64,
    last_ns: u64,
    weights: f64,
    groups: u64,
}

proptest! {
    /// E2 and E3: nobody that wants to run waits longer than promised, whatever comes, goes
    /// and overruns, and whoever else is favoured.
    #[test]
    fn the_floor_starves_nobody(
        groups in prop::collection::vec((1u32..=1000, any::<bool>(), any::<bool>()), 2..8),
        start in prop::sample::select(vec![0u32, 3, 1000]),
        floor in prop::sample::select(vec![0.02f32, 0.05, 0.3]),
        events in prop::collection::vec((0usize..8, 0u8..24, 1u64..2 * QUANTUM_NS), 500..3000),
    ) {
        let mut local = scheduler(las(start, floor), 8);
        let longest_ns = 2 * QUANTUM_NS;
        let mut waiting: [Option<Waiting>; 8] = [None; 8];
        let mut words = [NO_GROUP; 8];
        let mut came = 0;
        let mut now_ns = 0;
        for (slot, what, ns) in events {
            let (weight, is_static, _) = groups[slot % groups.len()];
            // Mostly new groups, which are favoured: those that are there starve, but for
            // the floor. A third of the slots keeps its group.
            match what {
                0..=7 if slot % 3 != 0 || words[slot] == NO_GROUP => {
                    came += 1;
                    words[slot] = GroupWord {
                        is_static,
                        ..word(came, Tier::TimeSensitive, weight)
                    };
                    local.admit(slot, words[slot], 0);
                    waiting[slot] = None;
                }
                8 => {
                    local.disable(slot);
                    waiting[slot] = None;
                    continue;
                }
                9..=12 if words[slot] != NO_GROUP => local.resume(slot),
                _ => {}
            }
            let is_active = |slot: usize| local.tiers[0].active.contains(slot);
            let weights = (0..8).filter(|&slot| is_active(slot));
            let weights: f64 = weights.map(|slot| share(words[slot].weight)).sum();
            let is_new = |slot: &usize| is_active(*slot) && waiting[*slot].is_none();
            let new: Vec<usize> = (0..8).filter(is_new).collect();
            let active = (0..8).filter(|&slot| is_active(slot)).count() as u64;
            for entry in waiting.iter_mut().flatten() {
                entry.weights = entry.weights.max(weights);
                entry.groups += new.len() as u64;
            }
            for slot in new {
                waiting[slot] = Some(Waiting {
                    since_ns: now_ns,
                    // A group that returns may still wait for what it had last.
                    last_ns: longest_ns,
                    weights,
                    groups: active,
                });
            }
            let Some(chosen) = local.choose() else {
                continue;
            };
            for (slot, entry) in waiting.iter().enumerate() {
                let Some(entry) = entry else { continue };
                let floor = match words[slot].is_static {
                    true => 1.0,
                    false => f64::from(floor),
                };
                let rate = floor * share(words[slot].weight) / entry.weights;
                let bound = entry.last_ns as f64 / rate + (entry.groups * longest_ns) as f64;
                let waited_ns = now_ns - entry.since_ns;
                prop_assert!(
                    waited_ns as f64 <= bound * (1.0 + 1e-9),
                    "slot {} waited {} ns of {}", slot, waited_ns, bound
                );
            }
            local.charge(chosen, ns);
            now_ns += ns;
            waiting[chosen] = Some(Waiting {
                since_ns: now_ns,
                last_ns: ns,
                weights,
                groups: active,
            });
        }
    }
}

/// Without the floor newcomers take everything, with it a long query has its part.
#[test]
fn the_floor_is_what_a_long_query_lives_on() {
    let received = |floor| {
        let mut local = scheduler(las(0, floor), 2);
        local.admit(0, word(1, Tier::TimeSensitive, 100), 500 * QUANTUM_NS);
        for number in 2..10_002 {
            local.admit(1, word(number, Tier::TimeSensitive, 100), 0);
            while local.received_ns(1) == 0 {
                let slot = local.choose().unwrap();
                local.charge(slot, QUANTUM_NS);
            }
        }
        local.received_ns(0) / QUANTUM_NS - 500
    };
    assert_eq!(received(0.0), 0);
    // Two groups of equal weight: one has half of the floor.
    let quanta = received(0.05);
    assert!((240..=260).contains(&quanta), "{quanta}");
}

/// Groups beyond `start` share by weight; one with a static priority has its share at all
/// times, and so do two.
#[test]
fn las_shares_by_weight() {
    let mut local = scheduler(las(2, 0.05), 12);
    for (slot, weight) in [(0, 100), (1, 200), (2, 700)] {
        local.admit(slot, word(slot as u64 + 1, Tier::TimeSensitive, weight), 0);
    }
    let got = shares(&mut local, 10_000);
    for (got, due) in got.iter().zip([1000, 2000, 7000]) {
        assert!(got.abs_diff(due) <= 10, "{got} of {due}");
    }

    let fixed = |id, weight| GroupWord {
        is_static: true,
        ..word(id, Tier::TimeSensitive, weight)
    };
    // It has had much: nothing but its share brings it to run before the others.
    local.admit(0, fixed(4, 100), 5_000 * QUANTUM_NS);
    local.admit(1, word(5, Tier::TimeSensitive, 100), 0);
    local.admit(2, word(6, Tier::TimeSensitive, 200), 0);
    let got = shares(&mut local, 1000);
    assert!(got[0].abs_diff(250) <= 5, "{got:?}");

    local.admit(1, fixed(7, 300), 5_000 * QUANTUM_NS);
    local.disable(2);
    let got = shares(&mut local, 1000);
    assert!(got[0].abs_diff(250) <= 5, "{got:?}");
}

/// The two stages, and least attained service alone.
#[test]
fn the_first_to_come_goes_first_up_to_the_start() {
    let turns = |start| {
        let mut local = scheduler(las(start, 0.0), 8);
        local.admit(1, word(1, Tier::TimeSensitive, 100), 0);
        local.admit(0, word(2, Tier::TimeSensitive, 100), 0);
        let mut turns = Vec::new();
        for _ in 0..8 {
            let slot = local.choose().unwrap();
            turns.push(slot);
            local.charge(slot, QUANTUM_NS);
        }
        turns
    };
    assert_eq!(turns(0), [1, 0, 1, 0, 1, 0, 1, 0]);
    assert_eq!(turns(3), [1, 1, 1, 0, 0, 0, 1, 0]);
    assert_eq!(turns(100), [1; 8]);
}

/// Where slots run out, the first to come goes on for as long as it has had.
#[test]
fn in_a_crowd_turns_get_longer() {
    let turns = |slots| {
        let mut local = scheduler(las(0, 0.0), slots);
        local.admit(0, word(1, Tier::TimeSensitive, 100), 8 * QUANTUM_NS);
        local.admit(1, word(2, Tier::TimeSensitive, 100), 8 * QUANTUM_NS);
        let turns = shares(&mut local, 12);
        (turns[0], turns[1])
    };
    assert_eq!(turns(8), (6, 6));
    assert_eq!(turns(7), (8, 4));
    assert_eq!(turns(3), (12, 0));
}

/// A change of the rule makes neither debts nor claims: whoever was far ahead by one rule is
/// due by the other as if it had just come, and not before.
#[test]
fn another_rule_begins_anew() {
    let mut local = scheduler(Policy::Adaptive, 16);
    for (slot, weight) in [(0, 100), (1, 100), (2, 100)] {
        local.admit(slot, word(slot as u64 + 1, Tier::TimeSensitive, weight), 0);
    }
    local.set_order(Order::Decay(Decay::new(0.0, 0).unwrap()));
    let got = shares(&mut local, 300);
    assert!(got[..3].iter().all(|got| got.abs_diff(100) <= 1), "{got:?}");
    // At p_min, a quantum is a hundred times as far ahead as at p0.
    local.charge(0, 5 * QUANTUM_NS);
    local.set_order(Order::Attained(Attained::INITIAL));
    // Nobody is due; who has received least goes first.
    assert_eq!(local.choose(), Some(1));
    local.charge(1, QUANTUM_NS);
    let mut waited = 0;
    for number in 10.. {
        local.admit(2, word(number, Tier::TimeSensitive, 100), 0);
        let slot = local.choose().unwrap();
        local.charge(slot, QUANTUM_NS);
        waited += 1;
        if slot == 0 {
            break;
        }
    }
    // Three groups of one weight: a quantum at 0.05 / 3 of the time.
    assert!((55..=65).contains(&waited), "{waited}");
}
