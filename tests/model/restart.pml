/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that may be killed at any step: what it promised must never be promised again.
 *
 * A client asks for a unit and believes in what a reply told it. The daemon decides in memory,
 * appends a record, then replies; each is a step of its own, and it can be killed before any of
 * them. Another then reads the records, waits for recorded holders to come back or to be known dead,
 * and grants nothing before that.
 *
 *   the units that clients believe in, and those that dead clients have left behind, never exceed
 *   the device; and what the daemon has in its books never falls short of what clients believe in.
 *
 * With LOST the records are gone as well: the books are made again from the holders that come back and
 * from what the driver shows.
 *
 * Broken on purpose, each to be found: REPLY_FIRST; NO_RELEASING (a dead client's unit is free before
 * the driver has it back); LOST with NO_GRACE (granting before all holders are back).
 */
#define N     3
#define CAP   2
#define KILLS 2

bool believes[N]; /* the client has a reply that says so */
bool asks[N];
bool dead[N];
bool lingers[N]; /* the driver still shows the unit of a dead client */
bool recorded[N];

/* The daemon's memory: gone when it is killed. */
bool books[N];
bool releasing[N];
bool grace;

byte n_kills;

#define MANAGED (books[0] + books[1] + books[2] + releasing[0] + releasing[1] + releasing[2])
#ifdef LOST
#define UNCLAIMED(i) (lingers[i] && !books[i] && !releasing[i])
#define UNMANAGED    (UNCLAIMED(0) + UNCLAIMED(1) + UNCLAIMED(2))
#else
#define UNMANAGED 0
#endif
#define USED (MANAGED + UNMANAGED)
#define REAL                                                                                       \
    (believes[0] + believes[1] + believes[2] + lingers[0] + lingers[1] + lingers[2])

inline forget() {
    n_kills++;
    i = 0;
    do
    :: i < N -> books[i] = false; releasing[i] = false; i++
    :: else -> break
    od;
    /* The next life. */
    i = 0;
    do
    :: i < N ->
#ifdef LOST
        recorded[i] = false;
#endif
        books[i] = recorded[i];
        i++
    :: else -> break
    od;
#ifndef NO_GRACE
    grace = true;
#endif
    skip
}

proctype daemon() {
    byte i, holder;

start:
    do
    /* A request. */
    :: atomic {
           !grace && USED < CAP ->
           if
           :: asks[0] && !books[0] && !releasing[0] -> holder = 0
           :: asks[1] && !books[1] && !releasing[1] -> holder = 1
           :: asks[2] && !books[2] && !releasing[2] -> holder = 2
           fi;
           books[holder] = true
       };
       if
       :: atomic { n_kills < KILLS -> forget() }; goto start
       :: skip
       fi;
#ifdef REPLY_FIRST
       atomic { asks[holder] && !dead[holder] -> believes[holder] = true; asks[holder] = false };
       if
       :: atomic { n_kills < KILLS -> forget() }; goto start
       :: skip
       fi;
       recorded[holder] = true
#else
       recorded[holder] = true;
       if
       :: atomic { n_kills < KILLS -> forget() }; goto start
       :: skip
       fi;
       /* A client that has died meanwhile hears nothing; its end is seen like any other. */
       atomic {
           if
           :: asks[holder] && !dead[holder] -> believes[holder] = true; asks[holder] = false
           :: else
           fi
       }
#endif
    /* A client's end. */
    :: atomic {
           if
           :: books[0] && dead[0] -> holder = 0
           :: books[1] && dead[1] -> holder = 1
           :: books[2] && dead[2] -> holder = 2
           fi;
           books[holder] = false;
#ifndef NO_RELEASING
           releasing[holder] = lingers[holder];
#endif
           recorded[holder] = releasing[holder]
       }
    /* The driver agrees. */
    :: atomic {
           if
           :: releasing[0] && !lingers[0] -> holder = 0
           :: releasing[1] && !lingers[1] -> holder = 1
           :: releasing[2] && !lingers[2] -> holder = 2
           fi;
           releasing[holder] = false;
           recorded[holder] = false
       }
    /* A holder gives back. */
    :: atomic {
           if
           :: books[0] && !dead[0] && !believes[0] && !asks[0] -> holder = 0
           :: books[1] && !dead[1] && !believes[1] && !asks[1] -> holder = 1
           :: books[2] && !dead[2] && !believes[2] && !asks[2] -> holder = 2
           fi;
           recorded[holder] = false;
           books[holder] = false
       }
    /* A client that asked before the kill asks again and is answered from the record. */
    :: atomic {
           if
           :: books[0] && asks[0] && !dead[0] && recorded[0] -> holder = 0
           :: books[1] && asks[1] && !dead[1] && recorded[1] -> holder = 1
           :: books[2] && asks[2] && !dead[2] && recorded[2] -> holder = 2
           fi;
           believes[holder] = true;
           asks[holder] = false
       }
    /* A holder comes back that no record knows. */
    :: atomic {
           if
           :: believes[0] && !books[0] -> holder = 0
           :: believes[1] && !books[1] -> holder = 1
           :: believes[2] && !books[2] -> holder = 2
           fi;
           books[holder] = true;
           recorded[holder] = true
       }
    /* All holders are back, or known to be dead. */
    :: atomic {
           grace && (!believes[0] || books[0]) && (!believes[1] || books[1]) &&
           (!believes[2] || books[2]) ->
           grace = false
       }
    :: atomic { n_kills < KILLS -> forget() }
    od
}

proctype client(byte me) {
    do
    :: atomic { !asks[me] && !believes[me] && !dead[me] && !lingers[me] -> asks[me] = true }
    :: atomic { believes[me] -> believes[me] = false }
    :: atomic { believes[me] -> believes[me] = false; dead[me] = true; lingers[me] = true }
    :: atomic { asks[me] -> asks[me] = false; dead[me] = true }
    /* The driver is done; the same place is taken by another process. */
    :: atomic { dead[me] && lingers[me] -> lingers[me] = false }
    :: atomic { dead[me] && !lingers[me] && !books[me] && !releasing[me] -> dead[me] = false }
    od
}

active proctype monitor() {
    do
    :: atomic { REAL > CAP -> assert(false) }
    od
}

init {
    atomic {
        run client(0);
        run client(1);
        run client(2);
        run daemon()
    }
}
