/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* A packet as a program on a device sees it, and the TCP header in it. `struct __sk_buff` is the kernel's interface
 * (linux/bpf.h), the same in every version, so nothing is relocated. */
#pragma once

#include "types.h"

/* linux/bpf.h */
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LRU_HASH = 9 };
enum { BPF_ANY, BPF_NOEXIST };
enum { TCX_NEXT = -1 };

#include <bpf/bpf_helpers.h>

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id;
	__u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port;
	__u32 data_meta;
	__u64 flow_keys, tstamp;
	__u32 wire_len, gso_segs;
};

struct bpf_spin_lock {
	__u32 val;
};

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define inline inline __attribute__((always_inline))
#define swap16 __builtin_bswap16

enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86dd, IPPROTO_TCP = 6 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };
enum { OPTION_END, OPTION_NOP, OPTION_MSS, OPTION_SCALE, OPTION_SACK_OK, OPTION_SACK, OPTION_TIMESTAMPS = 8 };

/* What precedes the IP header on this device: 14 bytes of Ethernet, or nothing. */
const volatile u32 link_header = 14;

/* A connection, by the ends of the data's direction: near sends it through this device. IPv4 addresses are mapped. */
struct ends {
	u32 near[4], far[4];
	u16 near_port, far_port;
};

/* Of a TCP segment. */
struct look {
	struct ends ends;
	u32 tcp;    /* where its header begins */
	u32 size;   /* at the IP level */
	u32 payload;
	u32 ack;    /* host order */
	u16 window; /* host order */
	u16 mss;    /* of a SYN; 536 without the option (RFC 9293 section 3.7.1) */
	u8 flags;
	u8 scale;   /* of a SYN: 1 without the option, 2 + shift with it; 0 is "no SYN seen" */
};

/* The options of a SYN, as core/src/wire/tcp/options.rs reads them; false if they are malformed. */
static inline bool syn_options(struct __sk_buff *skb, struct look *l, u32 at, u32 end)
{
	l->mss = 536;
	l->scale = 1;
	for (u32 i = 0; i < 40 && at < end; i++) {
		u8 head[2], value[2];
		u32 body;

		if (bpf_skb_load_bytes(skb, at, head, 1))
			return false;
		if (head[0] == OPTION_END)
			return true;
		if (head[0] == OPTION_NOP) {
			at++;
			continue;
		}
		if (at + 2 > end || bpf_skb_load_bytes(skb, at, head, 2) || head[1] < 2 || at + head[1] > end)
			return false;
		body = head[1] - 2;
		switch (head[0]) {
		case OPTION_MSS:
			if (body != 2 || bpf_skb_load_bytes(skb, at + 2, value, 2))
				return false;
			l->mss = value[0] << 8 | value[1];
			break;
		case OPTION_SCALE:
			if (body != 1 || bpf_skb_load_bytes(skb, at + 2, value, 1))
				return false;
			l->scale = 2 + min(value[0], 14);
			break;
		case OPTION_SACK_OK:
			if (body)
				return false;
			break;
		case OPTION_TIMESTAMPS:
			if (body != 8)
				return false;
			break;
		case OPTION_SACK:
			if (body != 8 && body != 16 && body != 24 && body != 32)
				return false;
		}
		at += head[1];
	}
	return true;
}

/* Reads the headers of a packet that travels with the data (`onward`) or against them. False if it is no whole, unfragmented
 * TCP segment right behind an IP header: extension headers are not followed. */
static inline bool look(struct __sk_buff *skb, bool onward, struct look *l)
{
	u32 near[4] = { 0, 0, __builtin_bswap32(0xffff), 0 }, far[4] = { 0, 0, __builtin_bswap32(0xffff), 0 };
	u32 ip = link_header, header, data;
	u8 h[40], t[20];

	if (skb->protocol == swap16(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ip, h, 20) || h[0] >> 4 != 4)
			return false;
		header = (h[0] & 15) * 4;
		l->size = h[2] << 8 | h[3];
		if (header < 20 || h[9] != IPPROTO_TCP || (h[6] & 0x3f) || h[7])
			return false;
		__builtin_memcpy(&near[3], h + 12, 4);
		__builtin_memcpy(&far[3], h + 16, 4);
	} else if (skb->protocol == swap16(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ip, h, 40) || h[0] >> 4 != 6 || h[6] != IPPROTO_TCP)
			return false;
		header = 40;
		l->size = 40 + (h[4] << 8 | h[5]);
		__builtin_memcpy(near, h + 8, 16);
		__builtin_memcpy(far, h + 24, 16);
	} else {
		return false;
	}
	l->tcp = ip + header;
	if (ip + l->size > skb->len || bpf_skb_load_bytes(skb, l->tcp, t, 20))
		return false;
	data = (t[12] >> 4) * 4;
	if (data < 20 || header + data > l->size)
		return false;
	l->payload = l->size - header - data;
	l->ack = (u32)t[8] << 24 | (u32)t[9] << 16 | (u32)t[10] << 8 | t[11];
	l->flags = t[13];
	l->window = t[14] << 8 | t[15];
	__builtin_memcpy(l->ends.near, onward ? near : far, 16);
	__builtin_memcpy(l->ends.far, onward ? far : near, 16);
	__builtin_memcpy(onward ? &l->ends.near_port : &l->ends.far_port, t, 2);
	__builtin_memcpy(onward ? &l->ends.far_port : &l->ends.near_port, t + 2, 2);
	return !(l->flags & SYN) || syn_options(skb, l, l->tcp + 20, l->tcp + data);
}

/* Writes the window field. The checksum follows by RFC 1624, or by whoever has yet to fill it in: for packets whose checksum is
 * left to the device the kernel does nothing here, rightly. */
static inline bool set_window(struct __sk_buff *skb, const struct look *l, u16 window)
{
	u16 from = swap16(l->window), to = swap16(window);

	return !bpf_l4_csum_replace(skb, l->tcp + 16, from, to, 2) && !bpf_skb_store_bytes(skb, l->tcp + 14, &to, 2, 0);
}
