/*
 * One direction of a TLS connection, and the numbers of its records (tls_aead_seal(), tls_direction_write(),
 * tls_direction_take(), tls_move.c; dpu_proxy/xts_proxy/upgrade/). Processes of the proxy have it one after the other:
 * 0 hands it to 1, and 1 hands it to 2. Any of them may end at any moment, and any may fail to encrypt. Claimed, for
 * any order of steps:
 *
 *     a number is used at most once under one key, and at most one process uses numbers
 *
 * Who seals takes the number first, and then encrypts, which may fail. What was sealed waits as ciphertext, and TCP
 * takes it in two parts; it moves with the direction. KeyUpdate is sealed under the old key; then the next
 * key begins with number 0.
 *
 * Moving: the owner writes a record, and wipes what it was made of. It keeps the record. The next process reads it, and
 * says that it takes it. The owner then says that it is the other one's, which is the last it does with it. Until it has
 * said so, it takes its own record back, if the other one has ended or is silent for too long. Who was told so serves.
 * What was said before an end is heard after it.
 *
 * Variants that must fail:
 *     KEEPS   who has written the record does not wipe, and goes on
 *     EARLY   who takes it serves before it was told that it is its own, as the code did until this model said so
 *     REGRETS who has said that it is the other one's takes it back when that has ended
 *     REPEATS what was sealed and not yet taken by TCP does not move with it: it is sealed again
 *     LATE    the number is counted after encryption, which may fail
 *     ONE_KEY the number begins again, and the key is the same
 */
#ifndef N
#define N 3 /* processes */
#endif
#ifndef RECORDS
#define RECORDS 3 /* numbers of a key */
#endif
#define KEYS 2

/* What a direction is: in a process, and in its record. */
typedef Direction {
	byte key, number;
	byte waits;     /* parts of a sealed record that TCP has not taken */
	byte waits_for; /* its number, of the key that it is under */
};

Direction at[N], record[N]; /* record[i]: what i has written */
bool alive[N], has[N], written[N], gone[N];
bool used[KEYS * (RECORDS + 1)]; /* by key and number */
bool takes[N], yours[N];         /* said by the next one of i, and by i */

/* A number goes into a cipher under a key. */
inline use() {
	k = at[me].key;
	n = at[me].number;
	assert(!used[k * (RECORDS + 1) + n]);
	used[k * (RECORDS + 1) + n] = true
}

/* At most one may serve. */
inline check_owners() {
	owners = 0;
	for (i : 0 .. N - 1) {
		owners = owners + has[i]
	}
	assert(owners <= 1);
	i = 0;
	owners = 0
}

inline write(w) {
	record[w].key = at[w].key;
	record[w].number = at[w].number;
	record[w].waits = at[w].waits;
	record[w].waits_for = at[w].waits_for
}

inline read(w, whose) {
	at[w].key = record[whose].key;
	at[w].number = record[whose].number;
	at[w].waits = record[whose].waits;
	at[w].waits_for = record[whose].waits_for
}

inline wipe(w) {
	at[w].key = 0;
	at[w].number = 0;
	at[w].waits = 0;
	at[w].waits_for = 0
}

proctype proxy(byte me) {
	byte k, n, i, owners;

	do
	/* it ends, and with it what it has */
	:: atomic { alive[me] ->
		alive[me] = false;
		has[me] = false;
		wipe(me);
		break
	   }
	/* a record of data: its number is used whatever becomes of it */
	:: atomic { alive[me] && has[me] && !at[me].waits && at[me].number < RECORDS ->
		use();
		if
		:: at[me].number++; at[me].waits = 2; at[me].waits_for = n /* two parts for TCP */
#ifdef LATE
		:: skip /* encryption failed, and the number was not counted */
#else
		:: at[me].number++ /* encryption failed */
#endif
		fi
	   }
	/* KeyUpdate */
	:: atomic { alive[me] && has[me] && !at[me].waits && at[me].number < RECORDS && at[me].key < KEYS - 1 ->
		use();
#ifndef ONE_KEY
		at[me].key++;
#endif
		at[me].number = 0
	   }
	/* TCP takes a part */
	:: atomic { alive[me] && has[me] && at[me].waits -> at[me].waits-- }
	/* it writes the record, and has no more than that */
	:: atomic { alive[me] && has[me] && me < N - 1 && !written[me] ->
		write(me);
		written[me] = true;
#ifdef REPEATS
		if
		:: record[me].waits -> record[me].waits = 0; record[me].number = record[me].waits_for
		:: else
		fi;
#endif
#ifndef KEEPS
		has[me] = false;
		wipe(me)
#endif
	   }
	/* the next one reads it, and says that it takes it */
	:: atomic { alive[me] && me > 0 && written[me - 1] && !takes[me - 1] && !gone[me - 1] ->
		read(me, me - 1);
		takes[me - 1] = true;
#ifdef EARLY
		has[me] = true;
#endif
	   }
	/* it is told that it is its own */
	:: atomic { alive[me] && me > 0 && takes[me - 1] && yours[me - 1] && !gone[me - 1] ->
		gone[me - 1] = true;
		has[me] = true;
		check_owners()
	   }
	/* the owner says so */
	:: atomic { alive[me] && written[me] && takes[me] && !yours[me] -> yours[me] = true }
	/* or it takes it back: the other one has ended, or is silent for too long, and is told no more */
#ifdef REGRETS
	:: atomic { alive[me] && written[me] && !gone[me] && me < N - 1 && !alive[me + 1] && yours[me] ->
		has[me] = true;
		read(me, me);
		written[me] = false
	   }
	:: atomic { alive[me] && written[me] && gone[me] && me < N - 1 && !alive[me + 1] ->
		has[me] = true;
		read(me, me);
		written[me] = false
	   }
#endif
	:: atomic { alive[me] && written[me] && !yours[me] ->
		has[me] = true;
		read(me, me);
		written[me] = false;
		takes[me] = true; /* an answer that comes late means nothing */
		gone[me] = true;
		check_owners()
	   }
	:: atomic { !alive[me] -> break }
	od
}

init {
	byte i;

	atomic {
		for (i : 0 .. N - 1) {
			alive[i] = true
		}
		has[0] = true;
		for (i : 0 .. N - 1) {
			run proxy(i)
		}
	}
}
