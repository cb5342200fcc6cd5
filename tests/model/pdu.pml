/*
 * A PDU that is longer than the window, from the proxy to the host: it flows in parts, and the receiver decides when a part is
 * handed on (PROTOCOL.md, "Pushed protocols").
 *
 * The application wants whole PDUs (a receive on SOCK_SEQPACKET gives one, a readiness call waits for one), so the
 * library would rather gather. What it gathers stays in the window, and the window is what the proxy may send. What this mirrors:
 *
 *   send_part()     receive() in dpu_proxy/native/connection/to_host.c: a part of any length the credits allow, which
 *                   takes COST in addition to its bytes; with fewer than COST + 1 credits none
 *   advert()        xts_credit_due(), xts_credit_advertise() in credit.h
 *   hand_on()       the receiver's rule: a whole PDU, or a part of one when what it holds unread reaches half of the window
 *
 * Parameters: W window, LIMIT (POST_CREDITS_LIMIT, a quarter), COST (XTS_PDU_CREDITS), P length of each PDU, N of them.
 * Checked: no deadlock; what is held, on the way, unread and unadvertised is the window; parts arrive whole and in order.
 * Variants that must fail: GATHER (the receiver hands on whole PDUs only), LATE (when the whole window is unread, not half of it).
 */
#ifndef W
#define W 16
#endif
#ifndef LIMIT
#define LIMIT (W / 4)
#endif
#ifndef COST
#define COST 2
#endif
#ifndef P
#define P 40
#endif
#ifndef N
#define N 2
#endif
#ifdef LATE
#define FULL W
#else
#define FULL ((W + 1) / 2)
#endif

chan parts = [W] of { byte, bool };   /* bytes, and whether the PDU goes on */
chan adverts = [W] of { byte };

byte held = W;        /* at the proxy */
byte flying;          /* bytes and costs of parts on their way */
byte unread;          /* at the host, costs included */
byte unadvertised;
byte advertised;      /* in adverts on their way */
bool whole;           /* the last part of a PDU is among the unread */
byte wanted = N;      /* PDUs the application has yet to read */

#define CONSERVED (held + flying + unread + unadvertised + advertised == W)

active proctype proxy() {
	byte left, n, pdus = N, credits;

	do
	:: atomic { pdus && !left -> left = P }
	/* send_part(): TCP may give few bytes or many. */
	:: atomic { left && held > COST ->
		n = (left < held - COST -> left : held - COST);
		if
		:: n = 1
		:: skip
		fi;
		left = left - n;
		held = held - n - COST;
		flying = flying + n + COST;
		parts!n, left > 0;
		if
		:: !left -> pdus--
		:: else
		fi;
		n = 0
	   }
	:: atomic { nempty(adverts) -> adverts?credits;
		held = held + credits;
		advertised = advertised - credits;
		credits = 0;
		assert(CONSERVED)
	   }
	:: !pdus && !left && !wanted && empty(adverts) -> break
	od
}

active proctype host() {
	byte n, got;
	bool more;

	do
	:: atomic { !whole && nempty(parts) -> parts?n, more;
		flying = flying - n - COST;
		unread = unread + n + COST;
		got = got + n;
		whole = !more;
		n = 0;
		assert(CONSERVED)
	   }
	/* hand_on() */
#ifdef GATHER
	:: atomic { whole ->
#else
	:: atomic { whole || unread >= FULL ->
#endif
		unadvertised = unadvertised + unread;
		unread = 0;
		if
		:: whole ->
			assert(got == P);
			got = 0;
			whole = false;
			wanted--
		:: else
		fi
	   }
	/* advert() */
	:: atomic { unadvertised > LIMIT ->
		advertised = advertised + unadvertised;
		adverts!unadvertised;
		unadvertised = 0
	   }
	:: !wanted && empty(parts) && unadvertised <= LIMIT -> break
	od
}
