/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue: clients ask for units of one device, wait, hold and give back, for ever.
 *
 * Calls are atomic, as in a daemon of one thread. A release only marks the queue as due; a turn of
 * the daemon, at any later moment, schedules it. A request is served at once only by the same
 * schedule.
 *
 *   no overcommit       the units held never exceed the device
 *   no lost wake-up     when the daemon rests, no waiter could be served
 *   no delay            the first waiter starts no later than if none had been backfilled past it
 *   no starvation       a waiter is served, though others of higher priority come for ever
 *
 * A newcomer of higher priority goes before the waiters that have been overtaken less than AGE
 * times: that is what a fixed worth of a step of priority, in time waited, comes to when requests
 * keep coming.
 *
 * A backfilled waiter finds its units beyond what the waiters before it keep, or takes no more than
 * the backfill room: the least that is left over in any state in which one of those would start,
 * over every set of clients that may hold or have given back by then.
 *
 * Broken on purpose, each to be found: NO_WAKEUP (a release that marks nothing), NO_KEEP (any waiter
 * that fits is backfilled), WIDE_ROOM (a unit more than the backfill room), NO_CHECK (grants without
 * looking), NO_AGEING.
 */
#ifdef LTL
#define N 3
#else
#define N 4 /* fairness takes its time */
#endif
#define CAP  4
#define NONE 255

#ifndef AGE
#define AGE 2
#endif

byte need[N];
byte prio[N]; /* larger goes first */
byte overtaken[N];
byte backfilled[N]; /* bits: those that were served before it out of order and may still hold */
bool waits[N], holds[N];
byte queue[N];
byte n_queue;
byte held;
bool due;

#define FREE (CAP - held)

inline leave(at) {
    j = at;
    do
    :: j + 1 < n_queue -> queue[j] = queue[j + 1]; j++
    :: else -> break
    od;
    n_queue--;
    queue[n_queue] = NONE
}

/* The units that those that hold may use, as bits. */
inline measure() {
    sums = 1;
    j = 0;
    do
    :: j < N ->
        if
        :: holds[j] -> sums = sums | (sums << need[j])
        :: else
        fi;
        j++
    :: else -> break
    od;
    j = 0
}

/* `waiter` waits: what is left over in the tightest state in which it starts. */
inline lower_room() {
    j = CAP - need[waiter];
    do
    :: sums & (1 << j) -> break
    :: else -> j--
    od;
    j = CAP - need[waiter] - j;
#ifdef WIDE_ROOM
    j++;
#endif
    if
    :: j < room -> room = j
    :: else
    fi;
    sums = sums | (sums << need[waiter]);
    j = 0
}

/* `queue[i]` is served before all in front of it. */
inline backfill() {
    j = 0;
    do
    :: j < i -> backfilled[queue[j]] = backfilled[queue[j]] | (1 << waiter); j++
    :: else -> break
    od;
    j = 0
}

/* Serve each waiter that fits beyond what is kept for those before it, or within their room. */
inline schedule() {
    i = 0;
    kept = 0;
    room = CAP;
    measure();
    do
    :: i < n_queue ->
        waiter = queue[i];
        if
#ifdef NO_CHECK
        :: true ->
#else
        :: need[waiter] + kept <= FREE || (need[waiter] <= room && need[waiter] <= FREE) ->
#endif
            backfill();
            held = held + need[waiter];
            waits[waiter] = false;
            holds[waiter] = true;
            overtaken[waiter] = 0;
            backfilled[waiter] = 0;
            assert(held <= CAP); /* no overcommit */
            leave(i);
            sums = sums | (sums << need[waiter])
        :: else ->
#ifndef NO_KEEP
            kept = kept + need[waiter];
            lower_room();
#endif
            i++
        fi
    :: else -> break
    od;
    sums = 0;
    room = 0;
    due = false
}

/* What those hold that were backfilled past `queue[0]`. */
inline measure_backfilled() {
    mine = 0;
    j = 0;
    do
    :: j < N ->
        if
        :: (backfilled[queue[0]] & (1 << j)) && holds[j] -> mine = mine + need[j]
        :: else
        fi;
        j++
    :: else -> break
    od;
    j = 0
}

/* Into the queue, by priority and age. */
inline join(me) {
    i = n_queue;
    do
    :: i > 0 ->
        waiter = queue[i - 1];
        if
#ifdef NO_AGEING
        :: prio[me] > prio[waiter] -> queue[i] = waiter; i--
#else
        :: prio[me] > prio[waiter] && overtaken[waiter] < AGE ->
            overtaken[waiter]++;
            queue[i] = waiter;
            i--
#endif
        :: else -> break
        fi
    :: else -> break
    od;
    queue[i] = me;
    n_queue++;
    waits[me] = true
}

proctype client(byte me) {
    byte i, j, waiter, kept, room, mine;
    short sums;

    do
    :: d_step { join(me); schedule() };
       (holds[me]);
       d_step {
           held = held - need[me];
           holds[me] = false;
           i = 0;
           do
           :: i < N -> backfilled[i] = backfilled[i] & ~(1 << me); i++
           :: else -> break
           od;
           i = 0;
           /* No delay: what would be enough for the first waiter without those backfilled, is. */
           if
           :: n_queue > 0 ->
               measure_backfilled();
               assert(need[queue[0]] > CAP - (held - mine) || need[queue[0]] <= FREE);
               mine = 0
           :: else
           fi;
#ifndef NO_WAKEUP
           due = true;
#endif
           skip
       }
    od
}

proctype daemon() {
    byte i, j, waiter, kept, room;
    short sums;

    do
    :: d_step { due -> schedule() }
    od
}

/* When the daemon rests, the first waiter could not be served. */
#ifndef LTL
active proctype monitor() {
    do
    :: atomic {
           (!due && n_queue > 0 && need[queue[0]] <= FREE) -> assert(false)
       }
    od
}
#else
ltl served { [] (waits[0] -> <> holds[0]) }
#endif

init {
    atomic {
        need[0] = 3; prio[0] = 0;
        need[1] = 1; prio[1] = 1;
        need[2] = 2; prio[2] = 1;
        queue[0] = NONE; queue[1] = NONE; queue[2] = NONE;
#if N > 3
        need[3] = 2; prio[3] = 0;
        queue[3] = NONE;
        run client(3);
#endif
        run client(0);
        run client(1);
        run client(2);
        run daemon()
    }
}
