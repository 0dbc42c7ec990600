/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* `becc`: the paper's bandwidth window around Reno (T. Kugimoto and Y. Amagai, 1997), inside Linux.
 *
 *   ACK --> t_acked --30 ms--> t_maxacked (most), t_msrd_th (smoothed)
 *   4th duplicate ACK: snd_swnd = t_maxacked * t_minrtt / ms_period
 *   every 1.5 s: probe upwards by a quarter, keep it if the rate follows by an eighth   (control.h)
 *   snd_cwnd = min(Reno's window, snd_swnd)                                             (connection.h)
 *
 * Same integers and same order as the Rust text; a test feeds both the same ACKs.
 *
 * Deviations, each for a fact of the kernel:
 * - Duplicate ACKs are counted by what they acknowledge: `sacked_out`, the segments above snd_una that have arrived. Without SACK
 *   the kernel counts duplicates into the same variable; with SACK one ACK may report several, and the trigger is passed rather
 *   than hit. A recovery that leaves it above the trigger does not trigger again.
 * - Recovery is the kernel's (SACK, RACK, RFC 9937), not BSD's, and growth needs a window that limits: see connection.h.
 * - Windows count whole packets for the kernel; `snd_swnd` itself stays in bytes.
 * - A connection without timestamps measures no RTT for BECC (the paper needs them too), so a loss leaves the least window. */
#include "connection.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("struct_ops")
void BPF_PROG(becc_init_connection, struct sock *sk)
{
	start(sk);
	tell_plainly(sk, STARTED);
}

SEC("struct_ops")
void BPF_PROG(becc_release, struct sock *sk)
{
	finish(sk);
}

SEC("struct_ops")
u32 BPF_PROG(becc_ssthresh, struct sock *sk)
{
	return halve(sk);
}

SEC("struct_ops")
u32 BPF_PROG(becc_undo_cwnd, struct sock *sk)
{
	return undo(sk, connection(sk)->block.snd_swnd);
}

SEC("struct_ops")
void BPF_PROG(becc_set_state, struct sock *sk, u8 new_state)
{
	change_state(sk, new_state, true);
}

SEC("struct_ops")
void BPF_PROG(becc_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *c = connection(sk);
	struct control_block *b = &c->block;
	struct seen s;

	if (!begun(c))
		return;
	s = look(tp, c);
	becc_input(b, &s, true);
	reno(tp, c, rs, s.acked);
	if (triggered(tp, c, &s))
		becc_loss(b, 2 * s.mss);
	bounded_by(b, bytes(c->cwnd, s.mss));
	obey(tp, c, b->snd_swnd);
	size_bursts(sk, s.mss);
	if (watched(c, s.now)) {
		struct observed o = { .kind = ACKED, .seen = &s, .rtt_us = rs->rtt_us, .bound = b->snd_swnd };

		tell(sk, &o);
	}
}

SEC(".struct_ops.link")
struct tcp_congestion_ops controller = {
	.init = (void *)becc_init_connection,
	.release = (void *)becc_release,
	.ssthresh = (void *)becc_ssthresh,
	.undo_cwnd = (void *)becc_undo_cwnd,
	.set_state = (void *)becc_set_state,
	.cong_control = (void *)becc_cong_control,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "becc",
};
