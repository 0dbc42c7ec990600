/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What every controller here has in common: a connection's state, Reno's window underneath, the bound around it, and what an
 * observer is told.
 *
 * One hook does it all: `cong_control` is called once for every ACK that arrives while data is outstanding, duplicates included,
 * after the kernel has updated its scoreboard. A controller that has it also owns the window during recovery, so RFC 9937's
 * proportional rate reduction is here too. (`cong_avoid` is not called for duplicates or in recovery; `in_ack_event` and
 * `pkts_acked` come before the scoreboard is complete.) `cong_control` has had its four arguments since Linux 6.10.
 *
 * The window that Reno grows (`cwnd`) is kept apart from the one the kernel obeys (`snd_cwnd`), the smaller of it and the bound:
 * else the bound could never be probed upwards. It grows only while the window is what limits sending (RFC 7661), to twice the
 * bound at most, as the Rust text has it. A loss halves the window in use, as the kernel's Reno does.
 *
 * Nobody watching costs one comparison per ACK: a watcher renews a lease in shared memory, and events are written only while it
 * lasts, so a killed watcher leaves nothing behind. */
#pragma once
#include "control.h"

struct connection {
	struct control_block block;
	u32 cwnd;    /* Reno's window, packets */
	u32 credit;  /* packets acknowledged in avoidance, not yet worth one more */
	u32 written; /* the snd_cwnd we left: another one is the kernel's wish */
	u32 undo_cwnd;
	u32 prr_delivered;
	u32 una;
	u32 duplicates;
	u32 guarded_until; /* end of what had been sent when a loss last set the window */
	u32 number;
	u32 emitted; /* when an observer was last told, microseconds */
	u8 guarded;
	u8 reducing;
};

/* One ACK, as the controller sees it. */
struct seen {
	u64 now;   /* microseconds */
	u32 acked; /* bytes by which snd_una advanced */
	u32 mss;
	u32 duplicates_before;
	u32 duplicates; /* segments above snd_una that have arrived: what the kernel counts as duplicate ACKs */
	u32 echo_ms;    /* RTT by the timestamp echoed, or ECHO_UNKNOWN */
};

enum kind { STARTED, ACKED, TIMED_OUT, CLOSED };
enum { ROUND_START = 1, APP_LIMITED = 2 };

/* What an observer is told; kernel/src/event.rs reads it. */
struct event {
	u64 now;
	u64 bandwidth;   /* bit/s */
	u64 pacing_rate; /* bytes/s */
	u32 number;      /* of the connection, for this program */
	u32 netns;
	u8 kind, state, flags, family;
	u16 local_port, remote_port;
	u8 local[16], remote[16];
	u32 acked, mss, duplicates_before, duplicates, echo_ms, una, nxt, srtt_us;
	s32 rtt_us;
	u32 delivered, interval_us, min_rtt_us;
	u32 cwnd, snd_cwnd;
	u32 snd_swnd, pre_snd_swnd, t_acked, t_maxacked, t_msrd_th, expct_th, t_minrtt, t_rtt, mode, bound;
};

struct {
	u64 until; /* microseconds of the clock of tcp_mstamp */
	u64 every; /* least time between two events of a connection, microseconds; 0: every ACK */
} lease SEC(".data.lease");

struct {
	u64 opened, closed, lost;
} counts SEC(".data.counts");

/* What the loader wants to remember of a load: program and parameters, as text. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8[4096]);
} about SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} events SEC(".maps");

_Static_assert(sizeof(struct connection) <= 13 * 8, "a connection has 104 bytes of its own in the kernel");

static inline struct connection *connection(struct sock *sk)
{
	return (struct connection *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

/* The kernel asks before `init` too: for the ACK in the answer to a SYN, and when a SYN is lost. */
static inline bool begun(const struct connection *c)
{
	return c->block.snd_swnd;
}

static inline u32 bytes(u32 packets, u32 mss)
{
	return saturate((u64)packets * mss);
}

/* Observers. What only some controllers have is theirs to fill in. */

struct observed {
	u32 kind;
	const struct seen *seen;
	u32 flags;
	s32 rtt_us;
	u32 delivered, interval_us, min_rtt_us, bound;
	u64 bandwidth;
};

static inline bool watched(struct connection *c, u64 now)
{
	return __builtin_expect(lease.until > now, 0) && (u32)now - c->emitted >= lease.every;
}

static __attribute__((noinline)) int tell(struct sock *sk, const struct observed *o)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *c = connection(sk);
	struct control_block *b = &c->block;
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&counts.lost, 1);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	c->emitted = o->seen->now;
	e->now = o->seen->now;
	e->kind = o->kind;
	e->acked = o->seen->acked;
	e->mss = o->seen->mss;
	e->duplicates_before = o->seen->duplicates_before;
	e->duplicates = o->seen->duplicates;
	e->echo_ms = o->seen->echo_ms;
	e->flags = o->flags;
	e->rtt_us = o->rtt_us;
	e->delivered = o->delivered;
	e->interval_us = o->interval_us;
	e->min_rtt_us = o->min_rtt_us;
	e->bandwidth = o->bandwidth;
	e->bound = o->bound;
	e->number = c->number;
	e->netns = sk->__sk_common.skc_net.net->ns.inum;
	e->state = ca_state(tp);
	e->family = sk->__sk_common.skc_family;
	e->local_port = __builtin_bswap16(tp->inet_conn.icsk_inet.inet_sport); /* skc_num is 0 once closed */
	e->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	if (e->family == AF_INET) {
		*(u32 *)e->local = sk->__sk_common.skc_rcv_saddr;
		*(u32 *)e->remote = sk->__sk_common.skc_daddr;
	} else {
		bpf_core_read(e->local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(e->remote, 16, &sk->__sk_common.skc_v6_daddr);
	}
	e->una = tp->snd_una;
	e->nxt = tp->snd_nxt;
	e->srtt_us = tp->srtt_us >> 3;
	e->pacing_rate = sk->sk_pacing_rate;
	e->cwnd = c->cwnd;
	e->snd_cwnd = tp->snd_cwnd;
	e->snd_swnd = b->snd_swnd;
	e->pre_snd_swnd = b->pre_snd_swnd;
	e->t_acked = b->t_acked;
	e->t_maxacked = b->t_maxacked;
	e->t_msrd_th = b->t_msrd_th;
	e->expct_th = b->expct_th;
	e->t_minrtt = b->t_minrtt;
	e->t_rtt = b->t_rtt;
	e->mode = b->mode;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* What an ACK says. */

/* Section 3.3: tcp_now - TSecr, in milliseconds; the kernel's timestamp clock ticks in them, or in microseconds if asked to. */
static inline u32 echo_ms(const struct tcp_sock *tp)
{
	u32 echo = tp->rx_opt.rcv_tsecr;
	bool micro = BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts);
	s32 rtt;

	if (!BPF_CORE_READ_BITFIELD(tp, rx_opt.saw_tstamp) || !echo)
		return ECHO_UNKNOWN;
	rtt = (u32)(micro ? tp->tcp_mstamp : tp->tcp_mstamp / 1000) - echo;
	return rtt < 0 ? ECHO_UNKNOWN : micro ? (u32)rtt / 1000 : (u32)rtt;
}

static inline struct seen look(const struct tcp_sock *tp, struct connection *c)
{
	u32 una = tp->snd_una, sacked = tp->sacked_out;
	struct seen s = {
		.now = tp->tcp_mstamp,
		.acked = una - c->una,
		.mss = tp->mss_cache,
		.duplicates_before = c->duplicates,
		.duplicates = sacked,
		.echo_ms = echo_ms(tp),
	};

	c->una = una;
	c->duplicates = sacked;
	if (tp->snd_cwnd != c->written) /* an MTU probe, a metric, a socket option */
		c->cwnd = tp->snd_cwnd;
	if (c->guarded && after(una, c->guarded_until))
		c->guarded = 0;
	return s;
}

/* The paper's part of an ACK up to Reno's growth: callouts, bytes, RTT. */
static inline void becc_input(struct control_block *b, const struct seen *s, bool probing)
{
	catch_up(b, s->now, probing);
	if (s->acked)
		becc_acked(b, s->acked);
	if (s->echo_ms != ECHO_UNKNOWN && (s->acked || s->duplicates > s->duplicates_before))
		becc_rtt(b, s->echo_ms);
}

/* The duplicates that set the window have come, and nothing guards it. */
static inline bool triggered(struct tcp_sock *tp, struct connection *c, const struct seen *s)
{
	if (s->duplicates_before >= trigger || s->duplicates < trigger || (guard && c->guarded))
		return false;
	c->guarded = 1;
	c->guarded_until = tp->snd_nxt;
	return true;
}

/* Reno */

static inline void grow(struct tcp_sock *tp, struct connection *c, u32 acked)
{
	bool slow_start = c->cwnd < tp->snd_ssthresh;
	u32 left = acked;

	if (!BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) && !(slow_start && c->cwnd < 2 * tp->max_packets_out))
		return;
	if ((u64)c->cwnd * tp->mss_cache >= 2ull * c->block.snd_swnd)
		return;
	if (slow_start) {
		u32 room = tp->snd_ssthresh - c->cwnd;

		left = acked > room ? acked - room : 0;
		c->cwnd += acked - left;
	}
	c->credit += left;
	if (c->credit >= c->cwnd) {
		u32 more = c->credit / max(c->cwnd, 1u);

		c->credit -= more * c->cwnd;
		c->cwnd += more;
	}
}

/* RFC 9937 section 6, in packets. */
static inline void reduce(struct tcp_sock *tp, struct connection *c, const struct rate_sample *rs, bool advanced)
{
	u32 pipe = in_flight(tp), ssthresh = tp->snd_ssthresh, out = tp->prr_out, send;

	if (!rs->acked_sacked)
		return;
	c->prr_delivered += rs->acked_sacked;
	if (pipe > ssthresh) {
		u32 before = max(tp->prior_cwnd, 1u);
		u32 share = ((u64)c->prr_delivered * ssthresh + before - 1) / before;

		send = share > out ? share - out : 0;
	} else {
		send = max(c->prr_delivered > out ? c->prr_delivered - out : 0, rs->acked_sacked);
		send += advanced && !rs->losses;
		send = min(send, ssthresh - pipe);
	}
	c->cwnd = max(pipe + max(send, (u32)!out), 1u);
}

static inline void reno(struct tcp_sock *tp, struct connection *c, const struct rate_sample *rs, u32 acked)
{
	u32 state = ca_state(tp);

	if (state == TCP_CA_CWR || state == TCP_CA_Recovery)
		reduce(tp, c, rs, acked);
	else if (acked)
		grow(tp, c, rs->acked_sacked);
}

/* win = min(snd_cwnd, bound), section 3.4; the peer's window the kernel minds itself. */
static inline void obey(struct tcp_sock *tp, struct connection *c, u32 bound)
{
	u32 mss = max(tp->mss_cache, 1u), window = c->cwnd;

	if ((u64)window * mss > bound)
		window = max(bound / mss, 2u);
	window = min(window, tp->snd_cwnd_clamp);
	tp->snd_cwnd = window;
	c->written = window;
}

/* The rate by which the kernel sizes its bursts, and paces if something asks it to: as for its own Reno, twice the window per
 * RTT in slow start and 1.2 times afterwards. */
static inline void size_bursts(struct sock *sk, u32 mss)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = max(tp->snd_cwnd, tp->packets_out), srtt8 = tp->srtt_us;
	u64 rate;

	if (!srtt8)
		return;
	rate = (u64)cwnd * mss * (tp->snd_cwnd < tp->snd_ssthresh / 2 ? 16000000 : 9600000) / srtt8;
	sk->sk_pacing_rate = min(rate, (u64)sk->sk_max_pacing_rate);
}

/* The other hooks, the same for all. */

static inline void start(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *c = connection(sk);

	becc_init(&c->block, tp->tcp_mstamp);
	c->cwnd = c->written = tp->snd_cwnd;
	c->credit = c->undo_cwnd = c->prr_delivered = c->guarded_until = c->guarded = c->reducing = 0;
	c->una = tp->snd_una;
	c->duplicates = tp->sacked_out;
	c->emitted = (u32)tp->tcp_mstamp - (1u << 31);
	c->number = __sync_fetch_and_add(&counts.opened, 1);
}

static inline void tell_plainly(struct sock *sk, u32 kind)
{
	struct seen s = { .now = tcp_sk(sk)->tcp_mstamp, .mss = tcp_sk(sk)->mss_cache, .echo_ms = ECHO_UNKNOWN };
	struct observed o = { .kind = kind, .seen = &s, .rtt_us = tcp_sk(sk)->srtt_us >> 3 };

	if (lease.until > s.now)
		tell(sk, &o);
}

static inline void finish(struct sock *sk)
{
	tell_plainly(sk, CLOSED);
	__sync_fetch_and_add(&counts.closed, 1);
}

/* Half of the window in use: RFC 5681 equation 4, counted as the kernel's Reno counts. */
static inline u32 halve(struct sock *sk)
{
	struct connection *c = connection(sk);

	c->undo_cwnd = c->cwnd;
	c->prr_delivered = 0;
	c->reducing = 1;
	return max(tcp_sk(sk)->snd_cwnd / 2, 2u);
}

/* The loss was none. */
static inline u32 undo(struct sock *sk, u32 bound)
{
	struct connection *c = connection(sk);

	if (!begun(c))
		return tcp_sk(sk)->snd_cwnd;
	c->cwnd = max(c->cwnd, c->undo_cwnd);
	c->reducing = 0;
	obey(tcp_sk(sk), c, bound);
	return c->written;
}

/* A retransmission timeout begins again with what the kernel grants; a recovery that has ended leaves ssthresh. */
static inline void change_state(struct sock *sk, u32 next, bool probing)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *c = connection(sk);

	if (!begun(c))
		return;
	if (next == TCP_CA_Loss) {
		catch_up(&c->block, tp->tcp_mstamp, probing);
		c->cwnd = c->written = tp->snd_cwnd;
		c->credit = 0;
		c->reducing = 0;
		bounded_by(&c->block, bytes(c->cwnd, tp->mss_cache));
		tell_plainly(sk, TIMED_OUT);
	} else if (c->reducing && next < TCP_CA_CWR) {
		c->cwnd = tp->snd_ssthresh;
		c->reducing = 0;
	}
}
