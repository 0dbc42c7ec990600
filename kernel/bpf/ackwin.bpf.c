/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* `ackwin`: a router writes what its queue can accept into the windows of the ACKs that pass it (T. Nagata, T. Miyazato,
 * Y. Taniguchi, S. Tamaki, about 2003), inside Linux, at the device whose queue is the bottleneck.
 *
 *   data ──> egress of the device: [queue: limit, backlog] ──> line of `rate` ──>
 *   <── rewritten ACK, window min(a, b) ── ingress of the device <── ACK, window a
 *
 *   b = ((limit - backlog) + rate RTT) / n segments                                    policy `share`
 *
 * Egress learns the data sender's SYN and counts what joins the queue; ingress learns the other SYN, counts flows, and writes.
 * The second text of core/src/ackwin: a test feeds both the same packets and compares every window.
 *
 * Deviations:
 * - The backlog is that of a virtual queue: every packet that leaves through the device joins it, a line of `rate` drains it, and
 *   what would pass `limit` is taken to be dropped. The real one is a queue discipline's own affair, kept per CPU by some, per
 *   class by others, and not at all in a shaper further on. So `rate` and `limit` must be those of the bottleneck, and packets
 *   are counted as queue disciplines do: with the link's header, each segment of an offloaded one with its own. A segment
 *   has mss + 52 bytes, as in the Rust text.
 * - Integers. b is an exact quotient here, of doubles there; where it is a whole number those may come out just below it.
 * - A connection is known by its addresses and ports, in a hash from which the least recently used goes: a flood of SYNs can push
 *   out connections in use, which then pass unchanged. An MSS of 0 is taken for 1. A round trip is at most a minute.
 * - IPv6 extension headers are not followed: such segments pass unchanged, and are not counted. ACKs are not held back. */
#include "packet.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BITS 4096
#define SECOND_US 1000000ull
#define THIRD_PACKET_NS 1000000000ull
#define BIT_NS 8000000000ull /* nanoseconds that a byte takes at 1 bit/s */

enum { HEADERS = 52, GUESS_US = 100000, LONGEST_WITHOUT_DATA = 120, LEAST_MSS = 88, LONGEST_RTT_US = 60000000 };
enum opening { UNSEEN, SYN_ONWARD, SYN_BACK, PAST };

/* Set once, when the program is loaded. */
const volatile u64 rate = 1000000; /* bit/s */
const volatile u64 limit = 65536;  /* bytes */
const volatile u64 rtt_us = 0;     /* 0: of each connection, as its handshake shows it */
const volatile u64 alive_ns = 1000000000;
const volatile u16 estimates[BITS + 1]; /* flows, by how many bits of the map they have set */

/* What the time is, for tests; 0: ask the kernel. */
struct {
	u64 now;
} fixed SEC(".data.clock");

struct {
	u64 passed, rewritten, unknown, floored;
} counts SEC(".data.counts");

/* What the loader wants to remember, as text. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8[4096]);
} about SEC(".maps");

struct connection {
	u8 scale, peer_scale; /* as in `struct look` */
	u16 mss;              /* the lesser of both ends'; 0 before any */
	u32 opening;
	/* Whether it has passed its handshake; and a SYN that came since, until the other end answers it. */
	u8 in_use, again, again_scale, again_onward;
	u16 again_mss;
	u16 unused;
	u32 again_at;
	u32 syn_at; /* microseconds modulo 2^32 */
	u32 rtt;    /* microseconds; 0 if it is not known */
	u32 ack;    /* the last ACK number that passed */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct ends);
	__type(value, struct connection);
} connections SEC(".maps");

/* The virtual queue, and linear counting (core/src/ackwin/count.rs): this interval's bits, and what the last one came to. */
struct router {
	struct bpf_spin_lock lock;
	u32 set, flows, flows_before;
	u64 began;
	u64 awaits_until; /* third packets of handshakes are expected until then */
	u64 free_at;   /* when the line has sent all that waits */
	u64 remainder; /* of the last division by `rate` */
	u64 bits[BITS / 64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct router);
} routers SEC(".maps");

static inline u64 clock(void)
{
	u64 set = *(volatile u64 *)&fixed.now;

	return set ? set : bpf_ktime_get_ns();
}

static inline struct router *router(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&routers, &only);
}

/* The virtual queue; under the lock. */

static inline u64 backlog(const struct router *r, u64 now)
{
	return r->free_at > now ? (r->free_at - now) * rate / BIT_NS : 0;
}

static inline void join(struct router *r, u64 now, u64 size)
{
	u64 work;

	if (backlog(r, now) + size > limit)
		return;
	if (r->free_at < now) {
		r->free_at = now;
		r->remainder = 0;
	}
	work = size * BIT_NS + r->remainder;
	r->free_at += work / rate;
	r->remainder = work % rate;
}

/* The flows; under the lock. */

/* The finaliser of SplitMix64. */
static inline u64 mix(u64 z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

static inline u64 number(const struct ends *e)
{
	u64 h = 0;

	for (int i = 0; i < 4; i++)
		h = mix(h ^ ((u64)e->near[i] << 32 | e->far[i]));
	return mix(h ^ ((u64)e->near_port << 16 | e->far_port));
}

static inline void see(struct router *r, u64 now, u64 key)
{
	u32 bit = (mix(key) >> 20) % BITS;
	u64 mask = 1ull << (bit % 64), since = now > r->began ? now - r->began : 0;

	if (since >= alive_ns) {
		r->flows_before = since < 2 * alive_ns ? r->flows : 0;
		for (int i = 0; i < BITS / 64; i++)
			r->bits[i] = 0;
		r->set = r->flows = 0;
		r->began = now;
	}
	if (!(r->bits[bit / 64] & mask)) {
		r->bits[bit / 64] |= mask;
		r->set = min(r->set + 1, (u32)BITS);
		r->flows = estimates[r->set];
	}
}

/* The connections. */

static inline struct connection *enter(const struct ends *ends)
{
	struct connection *c = bpf_map_lookup_elem(&connections, ends), fresh = {};

	if (c)
		return c;
	bpf_map_update_elem(&connections, ends, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&connections, ends);
}

/* What one end says in its SYN. */
static inline void says(struct connection *c, bool onward, u8 scale, u16 mss)
{
	if (onward)
		c->peer_scale = scale;
	else
		c->scale = scale;
	c->mss = max(c->mss ? min(c->mss, mss) : mss, LEAST_MSS);
}

/* From the SYN to the third packet is the whole round trip, whichever end opens; a SYN sent twice tells none (Karn). */
static inline void begins(struct connection *c, bool onward, u32 at)
{
	c->syn_at = at;
	c->opening = c->opening != UNSEEN ? PAST : onward ? SYN_ONWARD : SYN_BACK;
}

/*
 * A SYN or SYN-ACK passes. A connection that is in use believes none, since anybody can send one: only if the other end answers it,
 * which it does when the old connection is over, it is a new one.
 */
static inline void opens(struct connection *c, u64 now, bool onward, const struct look *l)
{
	bool answers = l->flags & ACK;

	if (c->in_use) {
		struct connection fresh = {};

		if (!answers) {
			c->again = 1;
			c->again_onward = onward;
			c->again_scale = l->scale;
			c->again_mss = l->mss;
			c->again_at = now / 1000;
			return;
		}
		if (!c->again || c->again_onward == onward)
			return;
		says(&fresh, c->again_onward, c->again_scale, c->again_mss);
		begins(&fresh, c->again_onward, c->again_at);
		*c = fresh;
	}
	says(c, onward, l->scale, l->mss);
	if (!answers)
		begins(c, onward, now / 1000);
}

static inline void goes_on(struct connection *c, u64 now, bool onward)
{
	if (c->opening == (onward ? SYN_ONWARD : SYN_BACK)) {
		c->opening = PAST;
		c->rtt = max((u32)(now / 1000) - c->syn_at, 1u);
	}
}

/* Both must have announced a scale (RFC 7323 section 2.2). */
static inline u32 shift(const struct connection *c)
{
	return c->scale >= 2 && c->peer_scale >= 2 ? min(c->scale - 2, 14) : 0;
}

SEC("tcx/egress")
int ackwin_onward(struct __sk_buff *skb)
{
	u64 now = clock(), size = max(skb->wire_len, skb->len);
	struct router *r = router();
	struct connection *c;
	struct look l = {};

	if (!r)
		return TCX_NEXT;
	bpf_spin_lock(&r->lock);
	join(r, now, size);
	bpf_spin_unlock(&r->lock);
	/* What a packet says of the connection is in its handshake, and that is short; but its third packet may have data. */
	if (skb->len > link_header + LONGEST_WITHOUT_DATA && now >= r->awaits_until)
		return TCX_NEXT;
	if (!look(skb, true, &l))
		return TCX_NEXT;
	if (l.flags & RST) {
		bpf_map_delete_elem(&connections, &l.ends);
	} else if (l.flags & SYN) {
		c = enter(&l.ends);
		if (c)
			opens(c, now, true, &l);
	} else {
		c = bpf_map_lookup_elem(&connections, &l.ends);
		if (c)
			goes_on(c, now, true);
	}
	return TCX_NEXT;
}

/* The window field that says b, for this connection. */
static inline u64 granted(const struct connection *c, u64 waiting, u64 flows)
{
	u64 mss = max(c->mss, 1), unit = 1ull << shift(c);
	u64 rtt = rtt_us ? rtt_us : c->rtt ? min(c->rtt, (u32)LONGEST_RTT_US) : GUESS_US;
	u64 free = limit > waiting ? limit - waiting : 0;
	/* Bytes for all flows, and what a segment of each would be; both times 8 SECOND_US. */
	u64 all = free * 8 * SECOND_US + rate * rtt, one = (mss + HEADERS) * flows * 8 * SECOND_US;
	u64 window, least = (mss + unit - 1) / unit;

	if (all < one)
		__sync_fetch_and_add(&counts.floored, 1);
	window = min(max(all / one, 1ull) * mss, 0xffffffffull);
	/* Whole segments: a unit of less than one is rounded up, another down, but not below one segment. */
	return unit < mss ? (window + unit - 1) / unit : max(window / unit, least);
}

SEC("tcx/ingress")
int ackwin_back(struct __sk_buff *skb)
{
	u64 now = clock(), waiting, flows, key, field;
	struct router *r = router();
	struct connection *c;
	struct look l = {};
	bool news;

	if (!r || !look(skb, false, &l))
		return TCX_NEXT;
	if (l.flags & RST) {
		bpf_map_delete_elem(&connections, &l.ends);
		return TCX_NEXT;
	}
	if (l.flags & SYN) {
		c = enter(&l.ends);
		if (c)
			opens(c, now, false, &l);
		r->awaits_until = now + THIRD_PACKET_NS;
		return TCX_NEXT;
	}
	if (!(l.flags & ACK))
		return TCX_NEXT;
	__sync_fetch_and_add(&counts.passed, 1);
	key = number(&l.ends);
	c = bpf_map_lookup_elem(&connections, &l.ends);
	if (!c || !c->scale || !c->peer_scale) {
		__sync_fetch_and_add(&counts.unknown, 1);
		return TCX_NEXT;
	}
	/*
	 * A flow shares the queue if its data take it: what comes back acknowledges something new. Of a connection whose handshake was
	 * not seen anybody can send ACKs.
	 */
	news = (s32)(c->ack - l.ack) < 0;
	bpf_spin_lock(&r->lock);
	if (news)
		see(r, now, key);
	flows = max(max(r->flows, r->flows_before), 1u);
	waiting = backlog(r, now);
	bpf_spin_unlock(&r->lock);
	c->in_use = 1;
	goes_on(c, now, false);
	c->ack = l.ack;
	field = granted(c, waiting, flows);
	if (field < l.window && set_window(skb, &l, field))
		__sync_fetch_and_add(&counts.rewritten, 1);
	return TCX_NEXT;
}
