/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth over two devices: jobs that grow a unit at a time, wait, and end when they have all they
 * want. A job that can neither grow nor end is a deadlock, which spin reports by itself.
 *
 * With BANKER all jobs declare their maxima, and growth is granted only if the job itself can still
 * come to its end in some order (daemon/broker/queue/bankers.c): no deadlock, and every job ends. With
 * DETECT no job declares, growth is granted wherever it fits, and waits that can never end are found
 * when they begin; the youngest is told so and gives back what it has
 * (daemon/broker/queue/deadlock.c).
 *
 * Broken on purpose, each to be found: NO_RULE (neither), and HALF_RULE (the banker looks at the
 * device that grows and not at the others).
 */
#define N   3
#define D   2
#define CAP 3

typedef job_t {
    byte has[D];
    byte wants[D]; /* in the end */
    bool ended;
    bool waits;
    byte on; /* the device that it waits for */
};
job_t job[N];
byte free[D];
byte n_ended;

/* Whether `me`, with one unit more of `d`, can come to its end; into `ok`. */
inline is_safe(me, d) {
    work[0] = free[0];
    work[1] = free[1];
    work[d]--;
    job[me].has[d]++;
    done = 0;
    ok = false;
    do
    :: (done & (1 << me)) -> ok = true; break
    :: else ->
        moved = false;
        k = 0;
        do
        :: k < N && !job[k].ended && !(done & (1 << k)) &&
#ifdef HALF_RULE
           job[k].wants[d] - job[k].has[d] <= work[d] ->
#else
           job[k].wants[0] - job[k].has[0] <= work[0] &&
           job[k].wants[1] - job[k].has[1] <= work[1] ->
#endif
            done = done | (1 << k);
            work[0] = work[0] + job[k].has[0];
            work[1] = work[1] + job[k].has[1];
            moved = true;
            k++
        :: k < N && (job[k].ended || (done & (1 << k)) ||
#ifdef HALF_RULE
                     job[k].wants[d] - job[k].has[d] > work[d]) ->
#else
                     job[k].wants[0] - job[k].has[0] > work[0] ||
                     job[k].wants[1] - job[k].has[1] > work[1]) ->
#endif
            k++
        :: k == N -> break
        od;
        if
        :: !moved -> break
        :: else
        fi
    od;
    job[me].has[d]--
}

/* Whether every job that has not ended waits for what cannot come; into `ok`. */
inline is_deadlocked() {
    work[0] = CAP;
    work[1] = CAP;
    done = 0;
    k = 0;
    /* Waiting jobs keep what they have, the others end. */
    do
    :: k < N ->
        if
        :: !job[k].ended && job[k].waits ->
            work[0] = work[0] - job[k].has[0];
            work[1] = work[1] - job[k].has[1]
        :: else -> done = done | (1 << k)
        fi;
        k++
    :: else -> break
    od;
    do
    :: true ->
        moved = false;
        k = 0;
        do
        :: k < N && !(done & (1 << k)) && work[job[k].on] > 0 ->
            done = done | (1 << k);
            work[0] = work[0] + job[k].has[0];
            work[1] = work[1] + job[k].has[1];
            moved = true;
            k++
        :: k < N && ((done & (1 << k)) || work[job[k].on] == 0) -> k++
        :: k == N -> break
        od;
        if
        :: !moved -> break
        :: else
        fi
    od;
    ok = (done != (1 << N) - 1)
}

inline give_back(me) {
    free[0] = free[0] + job[me].has[0];
    free[1] = free[1] + job[me].has[1];
    job[me].has[0] = 0;
    job[me].has[1] = 0
}

proctype grower(byte me) {
    byte d, k, done;
    short work[D];
    bool ok, moved;

    do
    :: atomic {
           (job[me].has[0] == job[me].wants[0] && job[me].has[1] == job[me].wants[1]) ->
           give_back(me);
           job[me].ended = true;
           n_ended++
       };
       break
    :: atomic {
           (job[me].has[0] < job[me].wants[0] || job[me].has[1] < job[me].wants[1]) ->
           if
           :: job[me].has[0] < job[me].wants[0] -> d = 0
           :: job[me].has[1] < job[me].wants[1] -> d = 1
           fi;
           job[me].waits = true;
           job[me].on = d;
#ifdef DETECT
           /* A wait that can never end is given up, here its own: it is the youngest. */
           is_deadlocked();
           if
           :: ok && free[d] == 0 -> job[me].waits = false; give_back(me)
           :: else
           fi
#endif
       };
       do
       :: !job[me].waits -> break
       :: atomic {
              job[me].waits && free[d] > 0 ->
#ifdef BANKER
              is_safe(me, d);
#else
              ok = true;
#endif
              if
              :: ok ->
                  free[d]--;
                  job[me].has[d]++;
                  job[me].waits = false;
                  assert(job[0].has[d] + job[1].has[d] + job[2].has[d] + free[d] == CAP)
              :: else
              fi
          };
          if
          :: job[me].waits -> (free[0] + free[1] > 0 && n_ended < N)
          :: else -> break
          fi
       od
    od
}

init {
    atomic {
        free[0] = CAP;
        free[1] = CAP;
        job[0].wants[0] = 3; job[0].wants[1] = 1;
        job[1].wants[0] = 1; job[1].wants[1] = 3;
        job[2].wants[0] = 2; job[2].wants[1] = 2;
        run grower(0);
        run grower(1);
        run grower(2)
    };
    (n_ended == N)
}

#ifdef LTL
ltl ends { <> (n_ended == N) }
#endif
