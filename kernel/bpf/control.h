/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* BECC's variables and the functions it adds to the kernel, in the integers and the order of the Rust text
 * (core/src/congestion/becc/control.rs and mod.rs), to which a test holds them event by event. Names and sections are the
 * paper's: T. Kugimoto and Y. Amagai, "Congestion Avoidance Algorithm Based on Available Bandwidth Estimation", 1997. */
#pragma once
#include "kernel.h"

#define UNLIMITED (65535u << 14)
#define U32_MAX (~0u)

enum mode { UPDATE_START, UPDATING, NOT_UPDATE };

/* Set once, when the program is loaded; the defaults are the paper's. Gains are 65536ths above 1, times microseconds. */
const volatile u32 trigger = 4;
const volatile u32 guard = 0;
const volatile u32 ms_period = 30;
const volatile u64 period_us = 30000;
const volatile u64 update_us = 1500000;
const volatile u32 sample_weight = 1 << 14;
const volatile u32 window_gain = 1 << 14;
const volatile u32 expected_gain = 1 << 13;
const volatile u32 expect_from_measured = 0;

struct control_block {
	u32 snd_swnd;
	u32 pre_snd_swnd;
	u32 t_acked;
	u32 t_maxacked;
	u32 t_msrd_th;
	u32 expct_th;
	u32 t_minrtt;
	u32 t_rtt;
	u32 mode;
	u64 next_timer;    /* microseconds, of the clock of tcp_mstamp */
	u64 next_update;
};

static inline u32 saturate(u64 value)
{
	return value > U32_MAX ? U32_MAX : value;
}

static inline u32 grown(u32 value, u32 fraction)
{
	return saturate(value + min(((u64)value * fraction) >> 16, (u64)U32_MAX));
}

static inline u32 toward(u32 value, u32 target, u32 fraction)
{
	return (s64)value + ((((s64)target - (s64)value) * (s64)fraction) >> 16);
}

static inline void becc_init(struct control_block *b, u64 now)
{
	b->snd_swnd = b->pre_snd_swnd = UNLIMITED;
	b->t_acked = b->t_maxacked = b->t_msrd_th = b->expct_th = b->t_minrtt = b->t_rtt = 0;
	b->mode = UPDATE_START;
	b->next_timer = now + period_us;
	b->next_update = now + update_us;
}

/* tcp_input, on an ACK that advances: section 3.2 (1). */
static inline void becc_acked(struct control_block *b, u32 bytes)
{
	b->t_acked = saturate((u64)b->t_acked + bytes);
}

/* tcp_input, on a timestamp echo: section 3.3. */
static inline void becc_rtt(struct control_block *b, u32 ms)
{
	ms = max(ms, 1u);
	b->t_rtt = ms;
	if (b->t_minrtt == 0 || ms < b->t_minrtt)
		b->t_minrtt = ms;
}

/* swnd_timer, every ms_period: section 3.2 (2) and eq. (1). */
static inline void swnd_timer(struct control_block *b)
{
	b->t_maxacked = max(b->t_maxacked, b->t_acked);
	b->t_msrd_th = toward(b->t_msrd_th, saturate((u64)b->t_acked * 1000 / ms_period), sample_weight);
	b->t_acked = 0;
}

static inline void enlarge(struct control_block *b)
{
	b->pre_snd_swnd = b->snd_swnd;
	b->snd_swnd = min(grown(b->snd_swnd, window_gain), UNLIMITED);
}

/* swnd_update, every 1.5 s: section 3.4. */
static inline void swnd_update(struct control_block *b)
{
	if (b->mode == UPDATE_START) {
		enlarge(b);
		b->expct_th = grown(b->t_msrd_th, expected_gain);
		b->mode = UPDATING;
	} else if (b->mode == UPDATING && b->t_msrd_th > b->expct_th) {
		enlarge(b);
		b->expct_th = grown(expect_from_measured ? b->t_msrd_th : b->expct_th, expected_gain);
	} else {
		if (b->mode == UPDATING)
			b->snd_swnd = b->pre_snd_swnd;
		b->mode = UPDATE_START;
	}
}

/* tcp_input, when the duplicate ACKs have told of a loss: section 3.4. */
static inline void becc_loss(struct control_block *b, u32 floor)
{
	u64 most = max(b->t_maxacked, b->t_acked);

	b->snd_swnd = max(saturate(most * b->t_minrtt / ms_period), floor);
	b->t_maxacked = 0;
	b->mode = NOT_UPDATE;
}

/* tcp_output: while the congestion window is the smaller one, an update would show nothing. */
static inline void bounded_by(struct control_block *b, u32 snd_cwnd)
{
	if (b->snd_swnd > snd_cwnd)
		b->mode = NOT_UPDATE;
}

struct catching_up {
	struct control_block *block;
	u64 now;
	u32 probing;
};

/* After a long silence both callouts only repeat themselves, so whole pairs of updates are skipped; the Rust text skips at the
 * beginning of a catch-up, this one as soon as it can, and both end in the same state. */
static inline void skip_silence(struct control_block *b, u64 now, bool probing)
{
	u64 pair = 2 * update_us;

	if (b->t_acked || b->t_msrd_th || (probing && b->mode == NOT_UPDATE) || now < b->next_update + 2 * pair)
		return;
	b->next_update += ((now - b->next_update) / pair - 1) * pair;
	if (b->next_update > b->next_timer)
		b->next_timer += (b->next_update - b->next_timer) / period_us * period_us;
}

static long callout(u32 index, struct catching_up *c)
{
	struct control_block *b = c->block;

	skip_silence(b, c->now, c->probing);
	if (min(b->next_timer, b->next_update) > c->now)
		return 1;
	if (b->next_timer <= b->next_update) {
		swnd_timer(b);
		b->next_timer += period_us;
	} else {
		if (c->probing)
			swnd_update(b);
		b->next_update += update_us;
	}
	return 0;
}

/* Silence ends in skipping well before this many callouts; what is beyond them waits for the next event. */
#define MOST_CALLOUTS (1 << 16)

/* Runs the callouts that are due, lazily: they send nothing themselves, so only an observer could tell. */
static inline void catch_up(struct control_block *b, u64 now, bool probing)
{
	struct catching_up c = { .block = b, .now = now, .probing = probing };

	if (min(b->next_timer, b->next_update) <= now)
		bpf_loop(MOST_CALLOUTS, callout, &c, 0);
}
