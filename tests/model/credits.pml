/*
 * One offloaded connection: post credits, frame credits and close, both directions, over two lossless queues.
 *
 * UP is from host to proxy, DOWN from proxy to host. What it mirrors:
 *
 *   seal()           xts_link_seal() in messages/native/link/link.c; credits are advertised as in send_recv() of
 *                    dpu_proxy/native/connection/to_host.c and in the sends of host_lib/native/calls/send.c
 *   frame_ack()      link_ack_due() and xts_link_control() in link_control.c
 *   link_receive()   link_take_ack() and xts_link_receive() in link.c; xts_credit_add() and xts_credit_receive() in
 *                    credit.h
 *   recycle()        xts_link_recycled()
 *   app_read()       xts_credit_free() in credit.h, buffer_consume() in host_lib/native/core/received_data.c
 *   tcp_write()      write_waiting() and account_taken() in dpu_proxy/native/connection/to_tcp.c
 *   ADVERT_DUE       xts_credit_due()
 *   closing          connection_close(), connection_drained(), send_closed() in the proxy; receive_closed() in
 *                    host_lib/native/core/message.c
 *
 * Checked in every state: both conservation laws (bytes of post credit, frames of the window), bounded buffers and
 * queues; in every run: no deadlock, both identifiers freed, each once, nothing sent to an identifier that is free.
 *
 * Parameters: W post-credit window, LIMIT (POST_CREDITS_LIMIT), MSG largest message, DIVISIBLE (a sender may send part of
 * it), F frame window, N messages each way. Deadlock-free exactly when (DIVISIBLE ? 1 : MSG) + LIMIT <= W.
 * Variants that must fail, so that the checks are known to work: HOLD_FRAMES (frames are kept until the application has
 * read them), ADVERT_TWICE, OVERSEND (senders ignore post credits), UNCOUNTED_CLOSE (CLOSE takes no frame credit),
 * FREE_EARLY (the host forgets its identifier before CLOSED), TALK_AFTER_CLOSE (the proxy sends on after CLOSED).
 */
#ifndef W
#define W 4
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef MSG
#define MSG 2
#endif
#ifndef F
#define F 2
#endif
#ifndef N
#define N 3
#endif
#define QUARTER 1 /* of the frame window: acknowledge when so many are recycled */
#define RESERVE F /* control frames a queue has room for in addition to the window */

#define UP 0
#define DOWN 1

mtype = { MESSAGE, FRAME_ACK };
mtype = { OPEN, CLOSING, FREE };

/* type, bytes of data, post credits, frames acknowledged, CLOSE or CLOSED */
chan queue[2] = [F + RESERVE] of { mtype, byte, byte, byte, bool };

/* Post credits of each direction: where each of the W bytes is. */
byte held[2] = W;
byte flying[2];
byte buffered[2];
byte unadvertised[2];
byte adverts[2];

/* Frame credits of each direction: where each of the F frames is. */
byte frame_credits[2] = F;
byte frames[2];
byte delivered[2]; /* and not recycled */
byte recycled[2];  /* and not told */
byte acks[2];

mtype host = OPEN;
mtype proxy = OPEN;
byte host_freed, proxy_freed;
bool tcp_done; /* the TCP peer has sent all it had, and the proxy has passed it on */

#define ADVERT_DUE(way) (unadvertised[way] > LIMIT)
#define BYTES(way) (held[way] + flying[way] + buffered[way] + unadvertised[way] + adverts[way])
#define FRAMES(way) (frame_credits[way] + frames[way] + delivered[way] + recycled[way] + acks[way])
/* An account ends with its connection: DOWN with the host's CLOSE, UP when the proxy forgets it. */
#define CONSERVED ((host != OPEN || BYTES(DOWN) == W) && (proxy == FREE || BYTES(UP) == W) && \
		   FRAMES(UP) == F && FRAMES(DOWN) == F)
#define BOUNDED (buffered[UP] <= W && buffered[DOWN] <= W && delivered[UP] <= F && delivered[DOWN] <= F)

/* How much a writer may send now; 0: it has to wait. */
#ifdef OVERSEND
#define SENDABLE(way) want
#elif defined(DIVISIBLE)
#define SENDABLE(way) (want < held[way] -> want : held[way])
#else
#define SENDABLE(way) (want <= held[way] -> want : 0)
#endif

/* Sends a message one way, with all credits and acknowledgements for the other. */
inline seal(way, bytes, last) {
	assert(nfull(queue[way]));
	assert(frame_credits[way] > 0);
	frame_credits[way]--;
	frames[way]++;
	held[way] = held[way] - bytes;
	flying[way] = flying[way] + bytes;
	queue[way]!MESSAGE, bytes, unadvertised[1 - way], recycled[1 - way], last;
	adverts[1 - way] = adverts[1 - way] + unadvertised[1 - way];
#ifndef ADVERT_TWICE
	unadvertised[1 - way] = 0;
#endif
	acks[1 - way] = acks[1 - way] + recycled[1 - way];
	recycled[1 - way] = 0
}

inline frame_ack(way) {
	assert(nfull(queue[way]));
	queue[way]!FRAME_ACK, 0, 0, recycled[1 - way], false;
	acks[1 - way] = acks[1 - way] + recycled[1 - way];
	recycled[1 - way] = 0
}

inline link_receive(way) {
	queue[way]?type, bytes, credits, acked, last;
	acks[1 - way] = acks[1 - way] - acked;
	frame_credits[1 - way] = frame_credits[1 - way] + acked;
	if
	:: type == MESSAGE ->
		frames[way]--;
		delivered[way]++;
		flying[way] = flying[way] - bytes;
		adverts[1 - way] = adverts[1 - way] - credits;
		held[1 - way] = held[1 - way] + credits
	:: else
	fi
}

inline recycle(way) {
	delivered[way]--;
	recycled[way]++
}

active proctype host_side() {
	mtype type;
	byte bytes, credits, acked, n, want, left;
	bool last, patient;

	/* How much the application writes, and whether it waits for all the proxy has to send before it closes. */
	atomic {
		select(left : 0 .. N);
		if
		:: patient = true
		:: patient = false
		fi
	}
	do
	:: atomic { host == OPEN && left && !want -> select(want : 1 .. MSG) }
	:: atomic { host == OPEN && want && frame_credits[UP] && SENDABLE(UP) > 0 ->
		n = SENDABLE(UP);
		seal(UP, n, false);
		want = want - n;
		if
		:: !want -> left--
		:: else
		fi;
		n = 0
	   }
	:: atomic { host == OPEN && ADVERT_DUE(DOWN) && frame_credits[UP] -> seal(UP, 0, false) }
	:: atomic { recycled[DOWN] >= QUARTER -> frame_ack(UP) }
	:: atomic { nempty(queue[DOWN]) ->
		link_receive(DOWN);
		if
		:: type == MESSAGE ->
			assert(host != FREE);
			if
			:: host == OPEN ->
				assert(!last);
				buffered[DOWN] = buffered[DOWN] + bytes
			:: else /* crossed our CLOSE: dropped */
			fi;
#ifdef HOLD_FRAMES
			if
			:: host != OPEN || !bytes -> recycle(DOWN)
			:: else
			fi;
#else
			recycle(DOWN);
#endif
			if
			:: last ->
				host = FREE;
				host_freed++
			:: else
			fi
		:: else
		fi;
		bytes = 0; credits = 0; acked = 0; last = false
	   }
	/* app_read(): this application writes all it has before it reads. */
	:: atomic { host == OPEN && !left && buffered[DOWN] ->
		if
		:: n = 1
		:: n = buffered[DOWN]
		fi;
		buffered[DOWN] = buffered[DOWN] - n;
		unadvertised[DOWN] = unadvertised[DOWN] + n;
		n = 0;
#ifdef HOLD_FRAMES
		do
		:: !buffered[DOWN] && delivered[DOWN] -> recycle(DOWN)
		:: else -> break
		od
#endif
	   }
	:: atomic { host == OPEN && !left && (!patient || tcp_done) &&
#ifndef UNCOUNTED_CLOSE
		    frame_credits[UP] &&
#endif
		    (!patient || !buffered[DOWN]) ->
		host = CLOSING;
		buffered[DOWN] = 0; /* what nobody will read */
#ifdef HOLD_FRAMES
		do
		:: delivered[DOWN] -> recycle(DOWN)
		:: else -> break
		od;
#endif
		seal(UP, 0, true);
#ifdef FREE_EARLY
		host = FREE;
		host_freed++;
#endif
	   }
	:: host == FREE && proxy == FREE && empty(queue[UP]) && empty(queue[DOWN]) && !recycled[UP] && !recycled[DOWN] ->
		break
	od;
	assert(host_freed == 1 && proxy_freed == 1);
	assert(frame_credits[UP] == F && frame_credits[DOWN] == F)
}

active proctype proxy_side() {
	mtype type;
	byte bytes, credits, acked, n, want, left;
	bool last;

	atomic {
		select(left : 0 .. N);
		tcp_done = !left
	}
	do
	:: atomic { proxy == OPEN && left && !want -> select(want : 1 .. MSG) }
	:: atomic { proxy == OPEN && want && frame_credits[DOWN] && SENDABLE(DOWN) > 0 ->
		n = SENDABLE(DOWN);
		seal(DOWN, n, false);
		want = want - n;
		if
		:: !want ->
			left--;
			tcp_done = !left
		:: else
		fi;
		n = 0
	   }
#ifdef TALK_AFTER_CLOSE
	:: atomic { ADVERT_DUE(UP) && frame_credits[DOWN] -> seal(DOWN, 0, false) }
#else
	:: atomic { proxy == OPEN && ADVERT_DUE(UP) && frame_credits[DOWN] -> seal(DOWN, 0, false) }
#endif
	:: atomic { recycled[UP] >= QUARTER -> frame_ack(DOWN) }
	:: atomic { nempty(queue[UP]) ->
		link_receive(UP);
		if
		:: type == MESSAGE ->
			assert(proxy != FREE);
			assert(proxy == OPEN); /* the host sends nothing after CLOSE */
			recycle(UP);           /* written to TCP or copied into the spill buffer: kept no longer */
			buffered[UP] = buffered[UP] + bytes;
			if
			:: last -> proxy = CLOSING
			:: else
			fi
		:: else
		fi;
		bytes = 0; credits = 0; acked = 0; last = false
	   }
	/* tcp_write(): as much as TCP takes, also after CLOSE. */
	:: atomic { buffered[UP] ->
		if
		:: n = 1
		:: n = buffered[UP]
		fi;
		buffered[UP] = buffered[UP] - n;
		unadvertised[UP] = unadvertised[UP] + n;
		n = 0
	   }
	/* CLOSED is the last message; the rest of the spill buffer goes on without an identifier. */
	:: atomic { proxy == CLOSING && frame_credits[DOWN] ->
		seal(DOWN, 0, true);
		proxy = FREE;
		proxy_freed++
	   }
	:: host == FREE && proxy == FREE && empty(queue[UP]) && empty(queue[DOWN]) && !recycled[UP] && !recycled[DOWN] &&
	   !buffered[UP] -> break
	od
}

/* Holds the laws in every state: it can move only where one is broken. */
active proctype observer() {
end:	atomic { !(CONSERVED && BOUNDED) -> assert(false) }
}
