/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Raises an error in the scheduler that is in force, as a program of its own would
 * that has come upon what it cannot handle. Run from user space, once.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

SEC("syscall")
int raise_error(void *ctx)
{
	scx_bpf_error("raised by ufs-probe");
	return 0;
}
