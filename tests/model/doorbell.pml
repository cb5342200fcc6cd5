/*
 * The doorbell of the host's queue, and who sleeps on it: threads in calls, one of which leads; the progress thread; a
 * program that sleeps elsewhere, on a polling context's descriptor or on a mirror. No wake-up may be lost:
 *
 *     whenever frames may come that somebody wants, a thread that will take them is awake, or the doorbell is armed (or
 *     has rung) and somebody sleeps on it who will take them.
 *
 * A lost one is an end in which somebody still sleeps. Clocks that would heal it (pings) are left out.
 *
 * What it mirrors. Each atomic step is what a thread does with xts.lock held; poll() and getting the lock are two steps.
 *
 *   arm(), disarm(), proxy's ring   shm_arm(), shm_disarm(), shm_kick() in messages/native/queues/shm.c
 *   pump()                          channel_pump() in host_lib/native/core/channel.c; one frame at a time, so that some are left
 *   take()                          sleep_on_channel() in wait.c: what whoever has slept on the queue does
 *   application                     wait_watching(), lead(), hand_over(), wake_one() in wait.c
 *   leave()                         stack_rest() in stack.c
 *   progress                        one_turn(), leave_armed(), progress_need() in progress_thread.c
 *   program                         xts_epoll() in epoll.c, epoll_end_turn() in epoll_fd.c; mirrors_update() in mirror.c
 *
 * Parameters: THREADS in calls, FRAMES for the program; MIRROR (the program sleeps on a mirror, not on a context), TURN (XTS_EPOLL_TURN). Variants that must fail,
 * each a fault that the code has had, or would have without a line that looks superfluous:
 *
 *   KEEPS_ARMED     who sleeps on the queue leaves c->armed set: the next thread that takes frames disarms it
 *   CLOCK_DISARMS   the progress thread, called by the clock, does not arm again for a leader that has come meanwhile
 *   STANDS_BY       the progress thread stands by without arming for a context's descriptor
 *   NO_HAND_OVER    a leader that goes wakes no other waiter
 *   NO_NEED         nor the progress thread
 *   LEAVES_UNARMED  a thread that took frames leaves without arming for others
 *   UNWATCHED       arming does not look once more (the queue's part)
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef FRAMES
#define FRAMES 1
#endif
#define NOBODY THREADS
#define FOR_PROGRAM THREADS /* frames are for a thread in a call, or for the program that sleeps elsewhere */

#ifdef MIRROR
#define MIRRORS 1
#else
#define MIRRORS 0
#endif

chan queue = [THREADS + FRAMES] of { byte };
bool armed;                    /* the request to be rung, in shared memory */
bool bell;                     /* the queue's descriptor is readable */
bool left_armed;               /* c->armed: by library_rest() */
byte leader = NOBODY;
bool waiting[THREADS], woken[THREADS], sleeping[THREADS], rung[THREADS], got[THREADS];
bool progress_on_queue, progress_standing_by, progress_rung;
bool shows = !MIRRORS;         /* the context's eventfd, or the mirror, is readable: to begin with, a collection decides */
bool idle, ready, turn;        /* of the context */
byte came;                     /* frames for the program */
byte interrupts = 1;           /* a signal, a timeout or another descriptor ends a wait */
byte clocks = 1;               /* what is offered on shared listeners has to be looked at */
byte i, kind;                  /* scratch of atomic steps */
bool there;

inline wake_one(w) {
	if
	:: sleeping[w] -> rung[w] = true
	:: else
	fi;
	sleeping[w] = false
}

inline disarm() {
	armed = false;
	bell = false
}

inline arm() {
	armed = true;
	there = false;
#ifndef UNWATCHED
	if
	:: nempty(queue) ->
		armed = false;
		there = true
	:: else
	fi
#endif
}

inline ring_context() {
	if
	:: !turn ->
		shows = true;
		idle = false
	:: else
	fi
}

inline pump() {
	if
	:: left_armed ->
		left_armed = false;
		disarm()
	:: else
	fi;
	if
	:: nempty(queue) ->
		queue?kind;
		if
		:: kind == FOR_PROGRAM ->
			ready = true;
			came++;
			ring_context()
		:: else ->
			got[kind] = true;
			if
			:: waiting[kind] && !woken[kind] ->
				woken[kind] = true;
				wake_one(kind)
			:: else
			fi
		fi;
		kind = 0
	:: else
	fi
}

inline take() {
	left_armed = false;
	disarm();
	pump()
}

inline goes_to_sleep_on_queue() {
#ifndef KEEPS_ARMED
	left_armed = false
#else
	skip
#endif
}

inline progress_need() {
	if
	:: progress_standing_by && MIRRORS && leader == NOBODY ->
		progress_standing_by = false;
		progress_rung = true
	:: else
	fi
}

inline leave() {
	do
#ifndef LEAVES_UNARMED
	:: leader == NOBODY && (idle || progress_on_queue) ->
		arm();
		if
		:: there -> pump()
		:: else ->
			left_armed = true;
			break
		fi
	:: else -> break
#else
	:: break
#endif
	od;
	there = false
}

inline hand_over() {
	leader = NOBODY;
	i = 0;
	do
	:: i < THREADS && !waiting[i] -> i++
	:: else -> break
	od;
	if
	:: i < THREADS ->
#ifndef NO_HAND_OVER
		wake_one(i)
#else
		skip
#endif
	:: else ->
#ifndef NO_NEED
		progress_need()
#else
		skip
#endif
	fi;
	i = 0
}

/* Waits in a call for the frame that is for this thread; interrupted, it calls again. */
active [THREADS] proctype application() {
	bool heard, ended;

call:	atomic {
		if
		:: pump() /* as xts_recv() begins */
		:: skip   /* as a call that has a reply does */
		fi;
		if
		:: got[_pid] ->
			leave();
			goto end_application
		:: else
		fi;
		waiting[_pid] = true;
		woken[_pid] = false;
		ended = false
	}
again:	atomic {
		if
		:: woken[_pid] || ended ->
			waiting[_pid] = false;
			if
			:: leader == _pid || leader == NOBODY -> hand_over()
			:: else
			fi;
			leave();
			goto call
		:: else
		fi;
		sleeping[_pid] = true;
		if
		:: leader == NOBODY || leader == _pid ->
			leader = _pid;
			arm();
			if
			:: there ->
				there = false;
				sleeping[_pid] = false;
				pump();
				goto again
			:: else -> goes_to_sleep_on_queue()
			fi
		:: else
		fi
	}
	/* poll() returns, */
	atomic {
		if
		:: rung[_pid] || (leader == _pid && bell)
		:: interrupts ->
			interrupts--;
			ended = true
		fi;
		heard = rung[_pid]
	}
	/* and the lock is free. */
	atomic {
		sleeping[_pid] = false;
		if
		:: heard -> rung[_pid] = false
		:: else
		fi;
		heard = false;
		if
		:: leader == _pid -> take()
		:: else
		fi;
		goto again
	}
end_application:
	skip
}

active proctype progress() {
	bool away;

	atomic { progress_standing_by = true }
asleep:	/* On its bell. */
end_bell: atomic {
		if
		:: progress_rung
		:: clocks ->
			clocks--;
			away = true
		fi;
	}
	atomic {
		progress_rung = false;
		progress_standing_by = false
	}
turns:	atomic {
		if
		:: leader == NOBODY && (MIRRORS || away) ->
			away = false;
			arm();
			if
			:: there ->
				there = false;
				pump();
				goto turns
			:: else
			fi;
			goes_to_sleep_on_queue();
			progress_on_queue = true
		:: else ->
			away = false;
#ifndef STANDS_BY
			if
			:: leader == NOBODY && idle ->
				arm();
				if
				:: there ->
					there = false;
					pump();
					goto turns
				:: else -> left_armed = true
				fi
			:: else
			fi;
#endif
			progress_standing_by = true;
			goto asleep
		fi
	}
end_queue: atomic { /* The clock may always call it from here, but then it only does the same again. */
		if
		:: bell || progress_rung
		:: clocks -> clocks--
		:: !MIRRORS /* it had a deadline */
		fi
	}
	atomic {
		progress_rung = false;
		progress_on_queue = false;
		take();
#ifndef CLOCK_DISARMS
		do
		:: leader != NOBODY ->
			arm();
			if
			:: there -> pump()
			:: else -> break
			fi
		:: else -> break
		od;
		there = false;
#endif
		goto turns
	}
}

/* Sleeps on a descriptor until it has had its frames. */
active proctype program() {
	do
	:: shows || (bell && !MIRRORS) ->
		atomic {
			if
			:: !MIRRORS -> pump()
			:: else
			fi;
			if
			:: ready ->
				ready = false;
				if
				:: MIRRORS -> shows = false
				:: else ->
#ifdef TURN
					turn = true;
					idle = false
#else
					ring_context()
#endif
				fi
			:: else ->
				shows = false;
				idle = !MIRRORS;
				turn = false
			fi;
			leave()
		}
#ifdef TURN
		atomic {
			if
			:: turn ->
				turn = false;
				if
				:: ready -> ring_context()
				:: else ->
					shows = false;
					idle = true
				fi;
				leave()
			:: else
			fi
		}
#endif
	:: came == FRAMES && !ready -> break
	od
}

/* A frame for each thread, and FRAMES, in any order. It publishes, then looks whether it has to ring, then rings. */
active proctype proxy() {
	bool sent[THREADS], ringing;
	byte n, to;

	do
	:: n + to < THREADS + FRAMES ->
		atomic {
			if
			:: !sent[0] ->
				sent[0] = true;
				n++;
				queue!0
#if THREADS > 1
			:: !sent[1] ->
				sent[1] = true;
				n++;
				queue!1
#endif
			:: to < FRAMES ->
				to++;
				queue!FOR_PROGRAM
			fi
		}
		atomic {
			ringing = armed;
			armed = false
		}
		atomic {
			bell = bell || ringing;
			ringing = false
		}
	:: else -> break
	od
}
