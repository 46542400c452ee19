// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The smallest scheduler that answers one question about a kernel: can a
 * sched_ext scheduler that calls kernel functions be loaded in it?
 *
 * It leaves every decision to the kernel's defaults. What matters is the call
 * it never makes: resolving it compares the function's type with the kernel's
 * type information, which is where kernels with faulty information fail.
 */
typedef unsigned long long u64;
typedef int s32;

#define SEC(name) __attribute__((section(name), used))
#define __ksym __attribute__((section(".ksyms")))

struct task_struct;

/* Only the members used here; libbpf matches them to the kernel's by name. */
struct sched_ext_ops {
	void (*running)(struct task_struct *p);
	char name[128];
} __attribute__((preserve_access_index));

extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;

char _license[] SEC("license") = "Dual MIT/GPL";

const volatile int never;

SEC("struct_ops/probe_running")
int probe_running(u64 *ctx)
{
	(void)ctx;
	if (never)
		scx_bpf_kick_cpu(0, 0);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops probe_ops = {
	.running = (void *)probe_running,
	.name = "giveway_probe",
};
