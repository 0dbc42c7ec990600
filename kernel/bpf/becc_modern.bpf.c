/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* `becc-modern`: what BECC becomes without its first loss, inside Linux: the second text of
 * core/src/congestion/becc/estimate.rs, whose head says why each part is there.
 *
 *   slow start --(four RTTs in a row risen, or bandwidth settled for three rounds)--> first window
 *   every round: snd_swnd = most bandwidth of the last rounds x least RTT of the last seconds + headroom
 *   least RTT grown old: half of it for 200 ms and two rounds, so that a true one is seen
 *   paced at window / least RTT
 *
 * Deviations:
 * - Only this preset: delay-based start, windowed filters, per-ACK samples and tracking are not switches here.
 * - The rate filter keeps the most of each round in 16 slots, which gives the same maximum as the Rust text's queue.
 * - A sample is the kernel's own (`struct rate_sample`): packets, not bytes; ours has mss bytes in each.
 * - A round begins with an ACK beyond what had been sent when the last one began.
 * - Pacing needs no fq: the kernel paces sockets itself (`sk_pacing_status`).
 * The rest as in becc.bpf.c. */
#include "connection.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile u32 rate_rounds = 10;
const volatile u64 rtt_window_us = 10000000;
const volatile u32 headroom = 4;
const volatile u32 pacing = 1;

#define SLOTS 16
#define RISEN_SAMPLES 4
#define FULL_ROUNDS 3
#define DRAIN_US 200000
#define DRAIN_ROUNDS 2

struct estimator {
	u64 rates[SLOTS]; /* the most of each round, bit/s */
	u64 bandwidth;    /* the most of those that count */
	u64 last_megabits; /* the last sample, over last_us: what is left when none counts */
	u64 paced;         /* window (bytes) << 32 | RTT (us) that the pacing rate was made of */
	u64 full;
	u64 min_at, drain_until; /* microseconds */
	u32 full_rounds, round, round_end;
	u32 min_rtt, last_rtt, recent[RISEN_SAMPLES], samples; /* microseconds; no min_rtt yet: 0 */
	u32 clean, least; /* draining: the round after which samples are clean, the least clean one (0: none) */
	u32 last_us;
	u8 draining;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct estimator);
} estimators SEC(".maps");

static inline u64 bytes_in(u64 rate, u32 us)
{
	return rate * us / 8000000;
}

static inline void note_rtt(struct estimator *e, u64 now, u32 rtt)
{
	e->last_rtt = rtt;
	e->recent[e->samples++ % RISEN_SAMPLES] = rtt;
	if (!e->min_rtt || rtt <= e->min_rtt) {
		e->min_rtt = rtt;
		e->min_at = now;
	}
	if (e->draining && e->round + 1 >= e->clean && (!e->least || rtt < e->least))
		e->least = rtt;
}

/* Bits over microseconds. Most samples are no larger than what their round has seen: those are told without a division. */
static inline void note_rate(struct estimator *e, u64 megabits, u32 us, bool app_limited)
{
	u64 *slot = &e->rates[e->round % SLOTS], rate;

	if (megabits >= (*slot + 1) * us) {
		rate = megabits / us;
		if (app_limited && rate <= e->bandwidth)
			return;
		*slot = rate;
		e->bandwidth = max(e->bandwidth, rate);
	} else if (app_limited) {
		return;
	}
	e->last_megabits = megabits;
	e->last_us = us;
}

static inline void next_round(struct estimator *e)
{
	u64 most = 0;

	e->round++;
	e->rates[e->round % SLOTS] = 0;
	for (u32 i = 0; i < SLOTS; i++)
		if (i <= rate_rounds)
			most = max(most, e->rates[(e->round - i) % SLOTS]);
	e->bandwidth = most || !e->last_us ? most : e->last_megabits / e->last_us;
}

/* min + min/8, between 4 and 16 ms more: in nanoseconds, so that nothing is rounded. */
static inline bool rtt_has_risen(const struct estimator *e)
{
	u64 eighth = e->min_rtt * 125ull, least = U32_MAX;
	u64 rise = max(min(eighth, 16000000ull), 4000000ull);

	for (u32 i = 0; i < RISEN_SAMPLES; i++)
		least = min(least, (u64)e->recent[i]);
	return e->min_rtt && least * 1000 >= e->min_rtt * 1000ull + rise;
}

static inline bool rate_has_settled(struct estimator *e)
{
	if (4 * e->bandwidth >= 5 * e->full) {
		e->full = e->bandwidth;
		e->full_rounds = 0;
	} else {
		e->full_rounds++;
	}
	return e->full_rounds >= FULL_ROUNDS;
}

/* Bandwidth times least RTT, plus a headroom that gives way where the queue lasts longer than a quarter of that RTT; 0 if
 * nothing is measured. */
static inline u64 window(const struct estimator *e, u32 mss)
{
	u64 least = U32_MAX, queue, most = (u64)headroom * mss;

	if (!e->min_rtt || !e->bandwidth)
		return 0;
	for (u32 i = 0; i < RISEN_SAMPLES; i++)
		least = min(least, (u64)e->recent[i]);
	queue = least > e->min_rtt ? least - e->min_rtt : 0;
	if (4 * queue > e->min_rtt)
		most = most * e->min_rtt / (4 * queue);
	return bytes_in(e->bandwidth, e->min_rtt) + most;
}

static inline u64 on_round(struct estimator *e, u64 now, u32 mss, bool bounded)
{
	next_round(e);
	if (e->draining) {
		if (e->round >= e->clean && now >= e->drain_until) {
			e->draining = 0;
			e->min_rtt = e->least ? e->least : e->min_rtt;
			e->min_at = now;
		}
	} else if (bounded && e->min_rtt && now - e->min_at > rtt_window_us) {
		e->draining = 1;
		e->drain_until = now + DRAIN_US;
		e->clean = e->round + DRAIN_ROUNDS;
		e->least = 0;
	}
	if (!bounded)
		return rate_has_settled(e) ? window(e, mss) : 0;
	return e->draining ? 0 : window(e, mss);
}

/* What a rate sample and an RTT add; the window to set, or 0. Tells the observer what was seen. */
static inline u64 on_ack(struct tcp_sock *tp, struct estimator *e, const struct seen *s, const struct rate_sample *rs,
			 bool bounded, struct observed *o)
{
	if (rs->rtt_us > 0)
		note_rtt(e, s->now, rs->rtt_us);
	o->rtt_us = rs->rtt_us;
	if (rs->interval_us > 0 && rs->delivered > 0) {
		o->delivered = rs->delivered;
		o->interval_us = rs->interval_us;
		o->flags |= rs->is_app_limited ? APP_LIMITED : 0;
		if (e->min_rtt && rs->interval_us >= e->min_rtt)
			note_rate(e, (u64)rs->delivered * s->mss * 8000000, rs->interval_us, rs->is_app_limited);
	}
	if (after(tp->snd_una, e->round_end)) {
		o->flags |= ROUND_START;
		e->round_end = tp->snd_nxt;
		return on_round(e, s->now, s->mss, bounded);
	}
	return !bounded && rtt_has_risen(e) ? window(e, s->mss) : 0;
}

static inline void set_window(struct control_block *b, u64 window, u32 mss)
{
	b->snd_swnd = max(min(window, (u64)UNLIMITED), 2ull * mss);
	b->mode = NOT_UPDATE;
}

static inline u32 bound(const struct control_block *b, const struct estimator *e, u32 mss)
{
	if (!e->draining || !e->min_rtt)
		return b->snd_swnd;
	return max(min((u64)b->snd_swnd, bytes_in(e->bandwidth, e->min_rtt) / 2), 2ull * mss);
}

/* The window over the least RTT; twice over the last RTT while slow start still searches. */
static inline void pace(struct sock *sk, struct connection *c, struct estimator *e, u32 mss)
{
	bool bounded = c->block.snd_swnd < UNLIMITED;
	u32 rtt = bounded || !e->last_rtt ? e->min_rtt : e->last_rtt;
	u64 window = (u64)c->written * mss << !bounded, paced = window << 32 | rtt, rate;

	if (!pacing || !rtt) {
		size_bursts(sk, mss);
		return;
	}
	if (paced == e->paced)
		return;
	e->paced = paced;
	rate = window * 1000000 / rtt;
	sk->sk_pacing_rate = min(rate, (u64)sk->sk_max_pacing_rate);
}

SEC("struct_ops")
void BPF_PROG(modern_init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct estimator *e = bpf_sk_storage_get(&estimators, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	start(sk);
	if (e) {
		__builtin_memset(e, 0, sizeof(*e));
		e->min_rtt = tp->srtt_us >> 3; /* the handshake may have met an emptier queue than any data will */
		e->min_at = tp->tcp_mstamp;
		e->round_end = tp->snd_nxt;
		pace(sk, connection(sk), e, tp->mss_cache);
	}
	/* As bbr does: where qdisc fq paces already, the kernel's timer must not pace a second time. */
	if (pacing && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	tell_plainly(sk, STARTED);
}

SEC("struct_ops")
void BPF_PROG(modern_release, struct sock *sk)
{
	finish(sk);
}

SEC("struct_ops")
u32 BPF_PROG(modern_ssthresh, struct sock *sk)
{
	return halve(sk);
}

SEC("struct_ops")
u32 BPF_PROG(modern_undo_cwnd, struct sock *sk)
{
	return undo(sk, connection(sk)->block.snd_swnd);
}

SEC("struct_ops")
void BPF_PROG(modern_set_state, struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss) {
		struct estimator *e = bpf_sk_storage_get(&estimators, sk, 0, 0);

		if (e)
			e->draining = 0; /* what was being drained is gone */
	}
	change_state(sk, new_state, false);
}

SEC("struct_ops")
void BPF_PROG(modern_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *c = connection(sk);
	struct control_block *b = &c->block;
	struct estimator *e = bpf_sk_storage_get(&estimators, sk, 0, 0);
	struct seen s;
	struct observed o = { .kind = ACKED, .seen = &s, .rtt_us = -1 };
	u64 set;

	if (!begun(c) || !e) /* no estimator: there was no memory for one when the connection began */
		return;
	s = look(tp, c);
	becc_input(b, &s, false);
	reno(tp, c, rs, s.acked);
	set = s.acked ? on_ack(tp, e, &s, rs, b->snd_swnd < UNLIMITED, &o) : 0;
	if (set)
		set_window(b, set, s.mss);
	if (triggered(tp, c, &s)) {
		set = window(e, s.mss);
		if (set) {
			set_window(b, set, s.mss);
			b->t_maxacked = 0;
		} else {
			becc_loss(b, 2 * s.mss);
		}
	}
	bounded_by(b, bytes(c->cwnd, s.mss));
	o.bound = bound(b, e, s.mss);
	obey(tp, c, o.bound);
	pace(sk, c, e, s.mss);
	if (watched(c, s.now)) {
		o.bandwidth = e->bandwidth;
		o.min_rtt_us = e->min_rtt;
		tell(sk, &o);
	}
}

SEC(".struct_ops.link")
struct tcp_congestion_ops controller = {
	.init = (void *)modern_init,
	.release = (void *)modern_release,
	.ssthresh = (void *)modern_ssthresh,
	.undo_cwnd = (void *)modern_undo_cwnd,
	.set_state = (void *)modern_set_state,
	.cong_control = (void *)modern_cong_control,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "becc_modern",
};
