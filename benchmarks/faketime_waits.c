/* Preloaded with libfaketime: timed waits of C11 threads follow the faked clock.

   librdkafka waits by cnd_timedwait, which libfaketime does not fake. Under an offset of +5 s a
   poll of 0.3 s took 10 s. As on a machine whose clock steps, a step forward ends waits early and
   a step backward makes those in progress longer. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <threads.h>
#include <time.h>

#define SLICE_NS 50000000L /* between two looks at the clock */
#define SECOND_NS 1000000000L

static bool before(struct timespec left, struct timespec right)
{
    return left.tv_sec != right.tv_sec ? left.tv_sec < right.tv_sec : left.tv_nsec < right.tv_nsec;
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    if (!before(end, *until))
        return thrd_timedout;
    end.tv_nsec += SLICE_NS;
    end.tv_sec += end.tv_nsec / SECOND_NS;
    end.tv_nsec %= SECOND_NS;
    if (before(*until, end))
        end = *until;
    /* glibc's types of both kinds of threads are the same. */
    int error = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, &end);
    /* The end of a slice is a spurious wake, which every caller must expect: it looks at what it
       waits for and waits again. */
    return error == 0 || error == ETIMEDOUT ? thrd_success : thrd_error;
}
