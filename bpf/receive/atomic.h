/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Atomics with the orders that the receive half needs. clang 14 has no __atomic_* loads and stores for BPF; its
 * __sync_* become BPF's atomic instructions, which are fully ordered if they return what was there.
 */
#ifndef TSUMUGI_RECEIVE_ATOMIC_H
#define TSUMUGI_RECEIVE_ATOMIC_H

#define load(at) (*(const volatile typeof(*(at)) *)(at))
#define store(at, value) (*(volatile typeof(*(at)) *)(at) = (value))
/*
 * Of an addition whose result nobody uses, clang makes one without BPF_FETCH. Only those with it are ordered: arm64's JIT
 * makes STADD of the others (Linux: emit_lse_atomic in arch/arm64/net/bpf_jit_comp.c; Documentation/atomic_t.txt). So `add`
 * is for what counts and orders nothing; the result of `add_ordered` is used, which costs nothing more on x86.
 */
#define add(at, by) ((void)__sync_fetch_and_add(at, by))
#define add_ordered(at, by)                                          \
	do {                                                         \
		typeof(*(at)) _before = __sync_fetch_and_add(at, by); \
		opaque(_before);                                     \
	} while (0)
/* A read that is a write, too: who comes second to a word sees all that the first had done. */
#define read_modify_write(at) __sync_fetch_and_or(at, 0)

/* Keeps the compiler from knowing where a value came from, so that it neither copies it nor makes branches of it. */
#define opaque(value) asm volatile("" : "+r"(value))

/* What was there. Opaque, or clang 14 makes a flag of whether that is `old`, and branches twice. */
#define compare_and_swap(at, old, new)                                        \
	({                                                                    \
		typeof(*(at)) _seen = __sync_val_compare_and_swap(at, old, new); \
		opaque(_seen);                                                \
		_seen;                                                        \
	})

#ifdef __TARGET_ARCH_x86
/* Loads are acquires and stores are releases; only the compiler must be kept from moving them. */
#define barrier() asm volatile("" ::: "memory")
#define load_acquire(at)                     \
	({                                   \
		typeof(*(at)) _l = load(at); \
		barrier();                   \
		_l;                          \
	})
#define store_release(at, value)  \
	do {                      \
		barrier();        \
		store(at, value); \
	} while (0)
#else
#define load_acquire(at) read_modify_write(at)
#define store_release(at, value) ((void)__sync_lock_test_and_set(at, value))
#endif

#endif
