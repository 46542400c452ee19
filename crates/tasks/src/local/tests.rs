//! The local scheduler against textbook stride scheduling, and what it promises.

use proptest::prelude::*;

use super::*;

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
        policy in 0usize..6,
    ) {
        let policy = [
            Policy::Fifo, Policy::Fair, Policy::Lottery { seed: 3 }, Policy::Balanced,
            Policy::LeastAttained, Policy::Tuned,
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
    local.set_decay(Decay::new(0.5, 17).unwrap());
    assert_eq!(local.slots[0].priority, P0 / 8.0);
    local.set_decay(Decay::new(0.5, 20).unwrap());
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

    let mut las = scheduler(Policy::LeastAttained, 3);
    admit_all(&mut las);
    las.charge(1, 5 * QUANTUM_NS);
    las.charge(2, 2 * QUANTUM_NS);
    assert_eq!(shares(&mut las, 6), [4, 0, 2]);

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
