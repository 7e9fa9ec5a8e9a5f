/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line: clients ask for units of one device, wait, hold and give back, for ever.
 *
 * Calls are atomic, as in a daemon of one thread. What frees units only stirs the line; a turn of
 * the daemon, at any later moment, walks it. A request is served at once only by the same walk.
 *
 *   no overcommit       the units held never exceed the device
 *   no lost wake-up     when the daemon rests, nobody waits who could be served
 *   nobody is delayed   who passes leaves enough for everybody before it
 *   no starvation       who waits is served, though others of higher priority come for ever
 *
 * A newcomer of higher priority goes before those who have been passed less than AGE times: that is
 * what a fixed worth of a step of priority, in time waited, comes to when requests keep coming.
 *
 * Broken on purpose, each to be found: NO_STIR (a release that wakes nobody), NO_KEEP (whoever fits
 * passes), NO_CHECK (grants without looking), NO_AGEING.
 */
#define N    3
#define CAP  3
#define NONE 255

#ifndef AGE
#define AGE 2
#endif

byte need[N];
byte rank[N]; /* priority: larger goes first */
byte passed[N];
bool waits[N], holds[N];
byte line[N];
byte n_line;
byte held;
bool stirred;

#define FREE (CAP - held)

inline take_out(at) {
    j = at;
    do
    :: j + 1 < n_line -> line[j] = line[j + 1]; j++
    :: else -> break
    od;
    n_line--;
    line[n_line] = NONE
}

/* Walk: serve who fits beyond what is kept for those before it, who need `ahead` in all. */
inline walk() {
    i = 0;
    kept = 0;
    ahead = 0;
    do
    :: i < n_line ->
        who = line[i];
        if
#ifdef NO_CHECK
        :: true ->
#else
        :: need[who] + kept <= FREE ->
#endif
            held = held + need[who];
            waits[who] = false;
            holds[who] = true;
            passed[who] = 0;
            assert(held <= CAP);                 /* no overcommit */
            assert(ahead == 0 || ahead <= FREE); /* nobody before it is delayed */
            take_out(i)
        :: else ->
            ahead = ahead + need[who];
#ifndef NO_KEEP
            kept = kept + need[who];
#endif
            i++
        fi
    :: else -> break
    od;
    stirred = false
}

/* Into the line, by priority and age. */
inline join(me) {
    i = n_line;
    do
    :: i > 0 ->
        who = line[i - 1];
        if
#ifdef NO_AGEING
        :: rank[me] > rank[who] -> line[i] = who; i--
#else
        :: rank[me] > rank[who] && passed[who] < AGE ->
            passed[who]++;
            line[i] = who;
            i--
#endif
        :: else -> break
        fi
    :: else -> break
    od;
    line[i] = me;
    n_line++;
    waits[me] = true
}

proctype client(byte me) {
    byte i, j, who, kept, ahead;

    do
    :: atomic { join(me); walk() };
       (holds[me]);
       atomic {
           held = held - need[me];
           holds[me] = false;
#ifndef NO_STIR
           stirred = true;
#endif
           skip
       }
    od
}

proctype daemon() {
    byte i, j, who, kept, ahead;

    do
    :: atomic { stirred -> walk() }
    od
}

/* When the daemon rests, the first in line could not be served. */
#ifndef LTL
active proctype monitor() {
    do
    :: atomic {
           (!stirred && n_line > 0 && need[line[0]] <= FREE) -> assert(false)
       }
    od
}
#else
ltl served { [] (waits[0] -> <> holds[0]) }
#endif

init {
    atomic {
        need[0] = 3; rank[0] = 0;
        need[1] = 1; rank[1] = 1;
        need[2] = 2; rank[2] = 1;
        line[0] = NONE; line[1] = NONE; line[2] = NONE;
        run client(0);
        run client(1);
        run client(2);
        run daemon()
    }
}
