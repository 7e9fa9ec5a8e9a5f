/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line: clients ask for units of one device, wait, hold and give back, for ever.
 *
 * Calls are atomic, as in a daemon of one thread. What frees units only stirs the line; a turn of
 * the daemon, at any later moment, walks it. A request is served at once only by the same walk.
 *
 *   no overcommit       the units held never exceed the device
 *   no lost wake-up     when the daemon rests, nobody waits who could be served
 *   nobody is delayed   whose turn it is starts no later than if those who passed it had not
 *   no starvation       who waits is served, though others of higher priority come for ever
 *
 * A newcomer of higher priority goes before those who have been passed less than AGE times: that is
 * what a fixed worth of a step of priority, in time waited, comes to when requests keep coming.
 *
 * Who passes finds its units beyond what those before it keep, or takes no more than the slack: the
 * least that is left over in any state in which one of those would start, over every set of clients
 * that may hold or have given back by then.
 *
 * Broken on purpose, each to be found: NO_STIR (a release that wakes nobody), NO_KEEP (whoever fits
 * passes), WIDE_SLACK (a unit more than the slack), NO_CHECK (grants without looking), NO_AGEING.
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
byte rank[N]; /* priority: larger goes first */
byte passed[N];
byte passers[N]; /* bits: who passed it and may still hold */
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

/* The units that those who hold may use, as bits. */
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

/* `who` waits: what is left over in the tightest state in which it starts. */
inline lower_slack() {
    j = CAP - need[who];
    do
    :: sums & (1 << j) -> break
    :: else -> j--
    od;
    j = CAP - need[who] - j;
#ifdef WIDE_SLACK
    j++;
#endif
    if
    :: j < slack -> slack = j
    :: else
    fi;
    sums = sums | (sums << need[who]);
    j = 0
}

/* All before `line[i]` are passed by it. */
inline pass() {
    j = 0;
    do
    :: j < i -> passers[line[j]] = passers[line[j]] | (1 << who); j++
    :: else -> break
    od;
    j = 0
}

/* Walk: serve who fits beyond what is kept for those before it, or within their slack. */
inline walk() {
    i = 0;
    kept = 0;
    slack = CAP;
    measure();
    do
    :: i < n_line ->
        who = line[i];
        if
#ifdef NO_CHECK
        :: true ->
#else
        :: need[who] + kept <= FREE || (need[who] <= slack && need[who] <= FREE) ->
#endif
            pass();
            held = held + need[who];
            waits[who] = false;
            holds[who] = true;
            passed[who] = 0;
            passers[who] = 0;
            assert(held <= CAP); /* no overcommit */
            take_out(i);
            sums = sums | (sums << need[who])
        :: else ->
#ifndef NO_KEEP
            kept = kept + need[who];
            lower_slack();
#endif
            i++
        fi
    :: else -> break
    od;
    sums = 0;
    slack = 0;
    stirred = false
}

/* What those hold who passed `line[0]`. */
inline measure_passers() {
    mine = 0;
    j = 0;
    do
    :: j < N ->
        if
        :: (passers[line[0]] & (1 << j)) && holds[j] -> mine = mine + need[j]
        :: else
        fi;
        j++
    :: else -> break
    od;
    j = 0
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
    byte i, j, who, kept, slack, mine;
    short sums;

    do
    :: d_step { join(me); walk() };
       (holds[me]);
       d_step {
           held = held - need[me];
           holds[me] = false;
           i = 0;
           do
           :: i < N -> passers[i] = passers[i] & ~(1 << me); i++
           :: else -> break
           od;
           i = 0;
           /* Nobody is delayed: what would be enough for the first without those who passed it, is. */
           if
           :: n_line > 0 ->
               measure_passers();
               assert(need[line[0]] > CAP - (held - mine) || need[line[0]] <= FREE);
               mine = 0
           :: else
           fi;
#ifndef NO_STIR
           stirred = true;
#endif
           skip
       }
    od
}

proctype daemon() {
    byte i, j, who, kept, slack;
    short sums;

    do
    :: d_step { stirred -> walk() }
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
#if N > 3
        need[3] = 2; rank[3] = 0;
        line[3] = NONE;
        run client(3);
#endif
        run client(0);
        run client(1);
        run client(2);
        run daemon()
    }
}
