/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The two words of Giveway, for C and for BPF programs: a tier and a weight.
 *
 * The crate `giveway-tier` (crates/tier) is the Rust mirror; a test of
 * `giveway-hints` compiles this header and compares every constant.
 */
#ifndef GIVEWAY_TIER_H
#define GIVEWAY_TIER_H

/* Who waits for the work: somebody, or nobody. The numbers are ABI. */
enum giveway_tier {
	GIVEWAY_TIER_BACKGROUND = 0,
	GIVEWAY_TIER_TIME_SENSITIVE = 1,
};

/* The tier of work that says nothing of itself. */
#define GIVEWAY_TIER_DEFAULT GIVEWAY_TIER_TIME_SENSITIVE

/* Share of the CPU inside a tier, in the units of cgroup v2's cpu.weight. */
#define GIVEWAY_WEIGHT_MIN 1
#define GIVEWAY_WEIGHT_DEFAULT 100
#define GIVEWAY_WEIGHT_MAX 10000

#endif
