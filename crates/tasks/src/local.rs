//! What one worker decides by itself: the pure part of Section 2.3, without
//! atomics and without a clock. Workers, the tuner's simulation and the tests
//! run this same code.
//!
//! ```text
//!   events                    per slot                       decision
//!   admit(slot, word)   ──▶  active, pass, received   ──▶   choose() ─▶ slot
//!   resume(slot)              priority = p(received)         charge(slot, ns)
//!   disable(slot)             per tier: global pass
//! ```
//!
//! Stride scheduling (Section 2.1). A group of priority p that has used the
//! fraction f of a quantum advances by f / p; the global pass of its tier by
//! f / Σp over the active groups. The active group with the least pass goes next.
//! `f` may be larger than one.
//!
//! L1. No background group is chosen while a time-sensitive one is active.
//!     (asserted in `choose`)
//! L2. A new group starts at the global pass of its tier: it has no claim to what
//!     was used before it. (not asserted: `admit` assigns it; the tests show the
//!     shares)
//! L3. A group that returns (its next task set, or a lane that became free)
//!     starts at the global pass, or at its own if that is larger. The paper says
//!     "an initial pass value"; with the global pass alone, a long last task of a
//!     task set would not count. (not asserted: as L2)
//! L4. Σp is summed up while the minimum is searched. A running sum would be as
//!     fast and drift. (not asserted: no sum is kept that could differ)
//! L5. At least 1 ns is charged, so a group whose tasks take no time is not chosen
//!     for ever. (not asserted: `charge` rounds up)
//!
//! Least attained service has the same events and the same slots. What a pass means there,
//! and what it keeps of L2 to L4, is in `attained`; L1 and L5 hold under every policy.
//!
//! A pass is a number of quanta divided by a priority. All passes are lowered by
//! the global pass before it gets so large that a task would be lost in rounding.

use giveway_tier::{Tier, Weight};

use crate::attained::{Attained, Levels};
use crate::decay::P0;
use crate::group_word::GroupWord;
use crate::mask::Mask;
use crate::order::Order;
use crate::policy::Policy;

/// Where the global pass is brought back to zero. A task of 1 µs at the greatest
/// priority, 10^6, is a step of 5e-10 with quanta of 2 ms; numbers of this size
/// are exact to 1e-13.
const REBASE: f64 = 1000.0;

/// A worker's view of the slots, and the time that each group received from it.
#[derive(Clone, Debug)]
pub(crate) struct LocalScheduler {
    policy: Policy,
    /// The current parameters, with policies that have any.
    order: Option<Order>,
    quantum_ns: u64,
    seat: Seat,
    slots: Box<[LocalSlot]>,
    tiers: [LocalTier; 2],
    random: SplitMix,
}

/// Which of how many workers this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) worker: usize,
    pub(crate) workers: usize,
}

#[derive(Clone, Copy, Debug)]
struct LocalSlot {
    word: GroupWord,
    pass: f64,
    received_ns: u64,
    priority: f64,
}

impl LocalSlot {
    /// How much later a group is due for each quantum that it has received: `attained`.
    fn period(&self, attained: Attained) -> f64 {
        let part = match self.word.is_static {
            // E3. Without a floor nothing is promised.
            true if attained.floor() > 0.0 => f64::from(attained.floor()),
            _ => 1.0,
        };
        part / self.priority
    }
}

#[derive(Clone, Debug)]
struct LocalTier {
    active: Mask,
    pass: f64,
    /// Σp at the last choice: L4.
    priorities: f64,
}

/// The group of a slot that never had one.
const NO_GROUP: GroupWord = GroupWord {
    id: 0,
    tier: Tier::Background,
    weight: Weight::DEFAULT,
    is_static: true,
};

fn index(tier: Tier) -> usize {
    match tier {
        Tier::TimeSensitive => 0,
        Tier::Background => 1,
    }
}

fn share(weight: Weight) -> f64 {
    f64::from(weight.get()) / f64::from(Weight::DEFAULT.get())
}

impl LocalScheduler {
    /// A view of so many slots, all inactive. A quantum is what parameters count in,
    /// t_max.
    pub(crate) fn new(policy: Policy, seat: Seat, slots: usize, quantum_ns: u64) -> Self {
        assert!(quantum_ns > 0, "a quantum takes time");
        let seed = match policy {
            Policy::Lottery { seed } => seed,
            _ => 0,
        };
        let slot = LocalSlot {
            word: NO_GROUP,
            pass: 0.0,
            received_ns: 0,
            priority: 0.0,
        };
        let tier = LocalTier {
            active: Mask::new(slots),
            pass: 0.0,
            priorities: 0.0,
        };
        LocalScheduler {
            policy,
            order: policy.order(),
            quantum_ns,
            seat,
            slots: vec![slot; slots].into(),
            tiers: [tier.clone(), tier],
            random: SplitMix(seed.wrapping_add(seat.worker as u64)),
        }
    }

    /// The group that this slot is taken to hold.
    pub(crate) fn word(&self, slot: usize) -> GroupWord {
        self.slots[slot].word
    }

    /// Event (2): the slot holds a new group, of which this worker has already
    /// run `received_ns`; that is 0 but in the tuner's simulation. L2.
    pub(crate) fn admit(&mut self, slot: usize, word: GroupWord, received_ns: u64) {
        self.disable(slot);
        let tier = &mut self.tiers[index(word.tier)];
        tier.active.insert(slot);
        self.slots[slot] = LocalSlot {
            word,
            pass: tier.pass,
            received_ns,
            priority: 0.0,
        };
        self.update_priority(slot);
        self.owe(slot);
    }

    /// Event (3): there is something to do for the slot's group again. L3.
    pub(crate) fn resume(&mut self, slot: usize) {
        let held = &mut self.slots[slot];
        if held.word == NO_GROUP {
            // The worker has not pulled the change bit of this slot's group yet.
            return;
        }
        let tier = &mut self.tiers[index(held.word.tier)];
        if !tier.active.contains(slot) {
            tier.active.insert(slot);
            held.pass = held.pass.max(tier.pass);
        }
    }

    /// Event (1): there is nothing to do for the slot's group.
    pub(crate) fn disable(&mut self, slot: usize) {
        self.tiers[index(self.slots[slot].word.tier)]
            .active
            .remove(slot);
    }

    /// The slot to run a task of: L1.
    pub(crate) fn choose(&mut self) -> Option<usize> {
        let tier = self.tiers.iter().position(|tier| !tier.active.is_empty())?;
        let chosen = match self.policy {
            Policy::Fifo => self.least(tier, |slot| slot.word.id as f64),
            Policy::Lottery { .. } => self.draw(tier),
            Policy::Balanced => self.seated(tier),
            Policy::Fair
            | Policy::Decay(_)
            | Policy::LeastAttained(_)
            | Policy::Tuned
            | Policy::Adaptive => match self.order {
                Some(Order::Attained(attained)) => self.attained(tier, attained),
                Some(Order::Decay(_)) | None => self.least(tier, |slot| slot.pass),
            },
        };
        debug_assert!(
            self.tiers[tier].active.contains(chosen) && index(self.slots[chosen].word.tier) == tier,
            "L1: slot {chosen} is chosen in another tier than its group's"
        );
        Some(chosen)
    }

    /// The group in the slot that was chosen last has been run for so long.
    pub(crate) fn charge(&mut self, slot: usize, ns: u64) {
        // L5.
        let ns = ns.max(1);
        let mut quanta = ns as f64 / self.quantum_ns as f64;
        let held = &mut self.slots[slot];
        let tier = &mut self.tiers[index(held.word.tier)];
        debug_assert!(held.priority > 0.0, "slot {slot} never had a group");
        match self.order {
            Some(Order::Attained(attained)) => {
                let due = held.pass.min(tier.pass);
                held.pass = due + quanta * held.period(attained);
                quanta *= f64::from(attained.floor());
            }
            Some(Order::Decay(_)) | None => held.pass += quanta / held.priority,
        }
        held.received_ns += ns;
        if tier.priorities > 0.0 {
            tier.pass += quanta / tier.priorities;
        }
        self.update_priority(slot);
        self.rebase();
    }

    /// From now on, groups are ordered like this, if the policy has an order. Under
    /// another rule passes mean something else; there all groups begin anew.
    pub(crate) fn set_order(&mut self, order: Order) {
        let Some(before) = self.order.filter(|&before| before != order) else {
            return;
        };
        self.order = Some(order);
        let is_same = std::mem::discriminant(&before) == std::mem::discriminant(&order);
        for slot in 0..self.slots.len() {
            self.update_priority(slot);
            if !is_same {
                let tier = index(self.slots[slot].word.tier);
                self.slots[slot].pass = self.tiers[tier].pass;
                self.owe(slot);
            }
        }
    }

    /// What this worker has run of the slot's group, ns.
    pub(crate) fn received_ns(&self, slot: usize) -> u64 {
        self.slots[slot].received_ns
    }

    fn update_priority(&mut self, slot: usize) {
        let held = &mut self.slots[slot];
        let quanta = held.received_ns / self.quantum_ns;
        let factor = match self.order {
            Some(Order::Decay(decay)) if !held.word.is_static => decay.factor(quanta),
            _ => 1.0,
        };
        held.priority = P0 * share(held.word.weight) * factor;
    }

    /// A group that begins at the global pass is due a quantum later, where groups are due.
    fn owe(&mut self, slot: usize) {
        if let Some(Order::Attained(attained)) = self.order {
            let held = &mut self.slots[slot];
            held.pass += held.period(attained);
        }
    }

    /// Who is due; if nobody is, who has received least beyond `start`, and of several the
    /// first to come: E1 of `attained`.
    #[inline]
    fn attained(&mut self, tier: usize, attained: Attained) -> usize {
        let start = f64::from(attained.start());
        let quantum_ns = self.quantum_ns as f64;
        let active = self.tiers.iter().map(|tier| tier.active.len()).sum();
        let levels = Levels::of(active, self.slots.len());
        let mut due = (f64::INFINITY, usize::MAX);
        let mut least = (f64::INFINITY, u64::MAX, usize::MAX);
        let mut priorities = 0.0;
        self.tiers[tier].active.for_each(|slot| {
            let held = &self.slots[slot];
            priorities += held.priority;
            if held.pass < due.0 {
                due = (held.pass, slot);
            }
            let received = held.received_ns as f64 / quantum_ns / share(held.word.weight);
            let key = match received < start {
                true => 0.0,
                false => levels.floor(received),
            };
            if (key, held.word.id) < (least.0, least.1) {
                least = (key, held.word.id, slot);
            }
        });
        self.tiers[tier].priorities = priorities;
        match due.0 <= self.tiers[tier].pass {
            true => due.1,
            false => least.2,
        }
    }

    /// The active slot of the tier with the least `key`; of several, the first.
    #[inline]
    fn least(&mut self, tier: usize, key: impl Fn(&LocalSlot) -> f64) -> usize {
        let mut best = (f64::INFINITY, usize::MAX);
        let mut priorities = 0.0;
        self.tiers[tier].active.for_each(|slot| {
            let held = &self.slots[slot];
            priorities += held.priority;
            let key = key(held);
            if key < best.0 {
                best = (key, slot);
            }
        });
        self.tiers[tier].priorities = priorities;
        best.1
    }

    fn draw(&mut self, tier: usize) -> usize {
        let mut last = self.least(tier, |slot| slot.pass);
        let mut lot = self.random.unit() * self.tiers[tier].priorities;
        let mut drawn = None;
        self.tiers[tier].active.for_each(|slot| {
            last = slot;
            lot -= self.slots[slot].priority;
            if lot < 0.0 && drawn.is_none() {
                drawn = Some(slot);
            }
        });
        // Rounding may leave a crumb beyond the last.
        drawn.unwrap_or(last)
    }

    /// Where this worker sits if all of them are spread over the groups.
    fn seated(&mut self, tier: usize) -> usize {
        self.least(tier, |slot| slot.pass);
        let mut slots = Vec::with_capacity(self.tiers[tier].active.len());
        self.tiers[tier].active.for_each(|slot| slots.push(slot));
        slots.sort_unstable_by_key(|&slot| self.slots[slot].word.id);
        let Seat { worker, workers } = self.seat;
        slots[worker * slots.len().min(workers) / workers]
    }

    fn rebase(&mut self) {
        for tier in 0..self.tiers.len() {
            let pass = self.tiers[tier].pass;
            if pass > REBASE {
                self.tiers[tier].pass = 0.0;
                for slot in &mut self.slots {
                    if index(slot.word.tier) == tier {
                        slot.pass -= pass;
                    }
                }
            }
        }
    }
}

/// Random numbers from one word of state (Steele et al., OOPSLA '14).
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
