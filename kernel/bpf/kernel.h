/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* What these programs see of the Linux kernel: only the members they use, by the kernel's own names. The loader moves each
 * access to where the running kernel keeps that member (CO-RE: `preserve_access_index`), so no header of a particular
 * kernel is needed, and none is committed. */
#pragma once

#include "types.h"

/* linux/bpf.h: map types and flags. */
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_SK_STORAGE = 24, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_F_NO_PREALLOC = 1, BPF_SK_STORAGE_GET_F_CREATE = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define AF_INET 2
#define ECHO_UNKNOWN (~0u)

/* include/net/tcp.h, include/net/sock.h */
enum tcp_ca_state { TCP_CA_Open, TCP_CA_Disorder, TCP_CA_CWR, TCP_CA_Recovery, TCP_CA_Loss };
enum tcp_ca_event { CA_EVENT_TX_START };
enum { TCP_CONG_NON_RESTRICTED = 1, SK_PACING_NONE = 0, SK_PACING_NEEDED = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		u8 u6_addr8[16];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	union {
		struct {
			__be32 skc_daddr;
			__be32 skc_rcv_saddr;
		};
	};
	__be16 skc_dport;
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
};

struct tcp_options_received {
	u32 rcv_tsecr;
	u16 saw_tstamp : 1;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_una;
	u32 snd_nxt;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 prr_out;
	u32 packets_out;
	u32 retrans_out;
	u32 sacked_out;
	u32 lost_out;
	u32 max_packets_out;
	u32 mss_cache;
	u32 srtt_us;
	u32 delivered;
	u64 tcp_mstamp;
	u8 tcp_usec_ts : 1;
	u8 is_cwnd_limited : 1;
	struct tcp_options_received rx_opt;
};

struct ack_sample {
	u32 pkts_acked;
};

struct rate_sample {
	u32 prior_delivered;
	s32 delivered;
	long interval_us;
	long rtt_us;
	int losses;
	u32 acked_sacked;
	bool is_app_limited;
};

/* The loader copies these members by name into the kernel's own table. */
struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 flags;
	char name[16];
};

#pragma clang attribute pop

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define inline inline __attribute__((always_inline))

static inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* Sequence numbers wrap. */
static inline bool after(u32 a, u32 b)
{
	return (s32)(b - a) < 0;
}

static inline u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

static inline u32 ca_state(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_state);
}
