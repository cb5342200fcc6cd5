/*
 * Frames that are repeated (messages/native/decorators/arq_sender.c, messages/native/decorators/arq_receiver.c). N frames of one direction go
 * over a wire that loses them, brings them any number of times and in any order; so do acknowledgements. Claimed:
 *
 *     the receiver delivers frame 0, 1, 2, …, each once
 *     no acknowledgement names what was never sent
 *     it does not come to a stop before all are delivered and the sender knows it
 *
 * On the wire a frame is a bit: while it is set, the frame may come, and may come again. That covers each loss, each
 * repetition and each order. When something is sent again is left open: arq_sender_due() may choose any frame that is
 * out, so the model holds for each rule by which losses are found. Numbers are not modulo here: with 2^32 of them and
 * W out, none comes again while an old one is on the wire.
 *
 * Variants that must fail: FORGETS (the receiver gives up what it has acknowledged selectively), AHEAD (it acknowledges
 * the frame after the last one), EARLY (a frame that comes early is delivered), TWICE (one that has come is delivered
 * again).
 */
#ifndef N
#define N 3
#endif
#ifndef W
#define W 2
#endif
#define ALL ((1 << N) - 1)
#define BIT(n) (1 << (n))

byte oldest, next;     /* of the sender: not arrived, as far as it knows; not sent */
byte known;            /* bits: have arrived, as it knows */
byte flying;           /* bits: on the wire */
byte expected;         /* of the receiver */
byte held;             /* bits: came early */
#define ACK(arrived, bits) ((arrived) * (1 << N) + (bits))
bit ack_flying[32]; /* for N up to 3 */

inline deliver(n) {
	assert(n == expected);
	expected++;
	do
	:: expected < N && (held & BIT(expected)) -> held = held & ~BIT(expected); expected++
	:: else -> break
	od
}

inline arrives(n) {
	if
#ifdef TWICE
	:: n < expected -> deliver(n)
#else
	:: n < expected /* a duplicate */
#endif
	:: n >= expected + W /* beyond the window */
#ifdef EARLY
	:: n > expected && n < expected + W -> deliver(n)
#else
	:: n > expected && n < expected + W -> held = held | BIT(n)
#endif
	:: n == expected -> deliver(n)
	fi
}

active proctype sender() {
	byte n, a, bits;
end:	do
	:: atomic { next < N && next - oldest < W -> flying = flying | BIT(next); next++ }
	:: atomic { oldest < next ->
		select(n : 0 .. N - 1);
		if
		:: n >= oldest && n < next && !(known & BIT(n)) -> flying = flying | BIT(n)
		:: else
		fi }
	:: atomic { oldest < N ->
		select(a : 0 .. N);
		select(bits : 0 .. ALL);
		if
		:: ack_flying[ACK(a, bits)] ->
			if
			:: true -> ack_flying[ACK(a, bits)] = 0
			:: true /* it may come again */
			fi;
			assert(a <= next && (bits >> next) == 0);
			if
			:: a >= oldest -> oldest = a; known = known | bits | (BIT(a) - 1)
			:: else /* overtaken by a later one */
			fi
		:: else
		fi }
	:: oldest == N -> break
	od
}

active proctype receiver() {
	byte n;
end:	do
	:: atomic { flying ->
		select(n : 0 .. N - 1);
		if
		:: flying & BIT(n) ->
			if
			:: true -> flying = flying & ~BIT(n); arrives(n)
			:: true -> arrives(n)
			:: true -> flying = flying & ~BIT(n) /* lost */
			fi
		:: else
		fi }
	:: atomic { expected || held ->
#ifdef AHEAD
		ack_flying[ACK((expected < N -> expected + 1 : N), 0)] = 1
#else
		ack_flying[ACK(expected, held)] = 1
#endif
		}
#ifdef FORGETS
	:: atomic { held -> held = 0 }
#endif
	od
}

/* Stuck: nothing is left to send, and the receiver still waits. */
active proctype watch() {
end:	atomic {
		oldest < next && (known & (BIT(next) - 1)) == BIT(next) - 1 -> /* it repeats none of them */
		assert(expected > oldest || (held & BIT(oldest)))
	}
}
