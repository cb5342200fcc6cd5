/* The threads and the queues; see handshake_pool.h. */
#include "common/time_units.h"
#include "handshake_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include "keys/key_client.h"

#define THREADS_MAX 8u
#define ACCOUNTS 64u     /* indexed by the account's number, modulo; accounts that collide share their time */
#define QUEUED_MAX 1024u /* jobs of one account */
#define WEIGHT 256u
#define NICE_LAST 19

struct account {
	struct list jobs; /* the oldest first */
	uint32_t count;
	uint64_t used_ns; /* processing time divided by its weight */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work, reserve_work, begun;
	pthread_t threads[THREADS_MAX + 1]; /* the background threads, and the reserve thread */
	uint32_t cpus;                      /* that the process may use */
	uint32_t holders, thread_count, begun_count, background_count, idle, queued;
	bool stopping;
	bool runs[THREADS_MAX]; /* which of the background threads have a job */
	bool reserve_sleeps;    /* until it is signalled */
	uint64_t reserve_ns;    /* how long the reserve thread may still work; 0: it sleeps */
	uint64_t progress_ns;   /* when the last job was done, or when one was queued while all threads were idle */
	uint64_t floor_ns;      /* used_ns of the account that was served last: a new account begins there */
	struct list given;      /* jobs without an owner */
	struct list pending;    /* bells that have to be rung before the thread that has their jobs sleeps */
	struct account accounts[ACCOUNTS];
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER,
	   .work = PTHREAD_COND_INITIALIZER,
	   .reserve_work = PTHREAD_COND_INITIALIZER,
	   .begun = PTHREAD_COND_INITIALIZER };

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static atomic_uint unfinished; /* jobs that are queued or running */

bool ulp_pool_is_working(void)
{
	return atomic_load_explicit(&unfinished, memory_order_relaxed);
}

/* CPUs of the process except one for each worker: jobs beyond these run only when a worker sleeps. */
static atomic_uint spare_cpus;

bool ulp_pool_needs_cpus(void)
{
	return atomic_load_explicit(&unfinished, memory_order_relaxed) >
	       atomic_load_explicit(&spare_cpus, memory_order_relaxed);
}

/* --- handing back ------------------------------------------------------------------------------------------------- */

/* With the lock held: the job belongs to its owner again, who is not told yet. */
static void hand_back(struct ulp_job *job, uint64_t at_ns)
{
	job->state = ULP_JOB_DONE;
	if (job->bell)
		ulp_bell_add(job->bell, &job->node, at_ns);
}

static void hand_back_now(struct ulp_job *job)
{
	hand_back(job, now_ns());
	if (job->bell)
		ulp_bell_ring(job->bell);
}

/* The thread has done the job, and goes on with others if there are any. */
static void hand_back_soon(struct ulp_job *job)
{
	hand_back(job, pool.progress_ns);
	if (job->bell && pool.queued)
		ulp_bell_ring_soon(job->bell, &pool.pending, pool.progress_ns);
	else if (job->bell)
		ulp_bell_ring(job->bell);
}

/* With the lock held: it was handed back, and nobody has been given it yet. */
static void leave_bell(struct ulp_job *job)
{
	if (job->bell)
		ulp_bell_remove(job->bell, &job->node);
}

void ulp_bell_serve(struct ulp_bell *bell)
{
	struct list *node;

	atomic_store(&bell->rung, false);
	do {
		pthread_mutex_lock(&pool.lock);
		node = ulp_bell_take(bell);
		pthread_mutex_unlock(&pool.lock);
		if (node) {
			struct ulp_job *job = list_entry(node, struct ulp_job, node);

			job->done(job);
		}
	} while (node);
}

/* --- queues: called with the lock held ---------------------------------------------------------------------------- */

static void dequeue(struct ulp_job *job)
{
	list_remove(&job->node);
	if (!job->orphan)
		pool.accounts[job->account].count--;
	pool.queued--;
	atomic_fetch_sub(&unfinished, 1);
}

/* A job has been added to a list. */
static void count_queued(void)
{
	if (!pool.queued && pool.idle == pool.background_count)
		pool.progress_ns = now_ns();
	pool.queued++;
	atomic_fetch_add(&unfinished, 1);
	if (pool.reserve_sleeps) {
		pool.reserve_sleeps = false; /* from now on it looks whether there is progress */
		pthread_cond_signal(&pool.reserve_work);
	}
	if (pool.idle)
		pthread_cond_signal(&pool.work);
}

static void enqueue(struct ulp_job *job)
{
	struct account *a = &pool.accounts[job->account];

	if (a->count == QUEUED_MAX) {
		struct ulp_job *oldest = list_entry(a->jobs.next, struct ulp_job, node);

		dequeue(oldest);
		oldest->undone = true;
		hand_back_now(oldest);
	}
	if (!a->count && a->used_ns < pool.floor_ns)
		a->used_ns = pool.floor_ns;
	list_append(&a->jobs, &job->node);
	a->count++;
	count_queued();
}

/* The account of the next job; there has to be one. */
static struct account *next_account(void)
{
	struct account *next = NULL;

	for (uint32_t i = 0; i < ACCOUNTS; i++) {
		struct account *a = &pool.accounts[i];

		if (a->count && (!next || a->used_ns < next->used_ns))
			next = a;
	}
	return next;
}

static struct ulp_job *take(void)
{
	struct account *a = list_empty(&pool.given) ? next_account() : NULL;
	struct ulp_job *job = list_entry(a ? a->jobs.next : pool.given.next, struct ulp_job, node);

	if (a)
		pool.floor_ns = a->used_ns;
	dequeue(job);
	atomic_fetch_add(&unfinished, 1);
	job->state = ULP_JOB_RUNNING;
	return job;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

/* The thread sanitizer has locks of its own, on which other threads spin. They would all wait for a SCHED_IDLE thread
 * that holds such a lock and gets no CPU. So with the sanitizer every thread is an ordinary one. */
#if defined(__SANITIZE_THREAD__)
#define IDLE SCHED_OTHER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IDLE SCHED_OTHER
#endif
#endif
#ifndef IDLE
#define IDLE SCHED_IDLE
#endif

static void set_policy_of(pthread_t thread, int policy)
{
	struct sched_param none = { 0 };

	(void)pthread_setschedparam(thread, policy, &none);
}

static void set_policy(int policy)
{
	set_policy_of(pthread_self(), policy);
}

/* A thread that may lower its nice value may also leave SCHED_IDLE: the kernel demands the same for both (RLIMIT_NICE,
 * CAP_SYS_NICE). So this tries it with the nice value, where it does no harm if it cannot be undone. */
static bool may_leave_idle(void)
{
	int nice = getpriority(PRIO_PROCESS, 0); /* of this thread only */

	return nice < NICE_LAST && !setpriority(PRIO_PROCESS, 0, nice + 1) && !setpriority(PRIO_PROCESS, 0, nice);
}

/* Runs the next job, as SCHED_IDLE if the thread may leave that again. *runs: for hurry(); NULL: of no use there.
 * Called with the lock held, which it releases meanwhile. Returns how long the job took. */
static uint64_t run_next(bool can_leave_idle, bool *runs)
{
	struct ulp_job *job = take();
	uint64_t begun, took_ns;

	if (runs)
		*runs = true;
	pthread_mutex_unlock(&pool.lock);
	begun = now_ns();
	if (can_leave_idle)
		set_policy(IDLE);
	job->run(job);
	if (can_leave_idle)
		set_policy(SCHED_BATCH);
	atomic_fetch_sub(&unfinished, 1);
	pthread_mutex_lock(&pool.lock);
	if (runs)
		*runs = false;
	pool.progress_ns = now_ns();
	took_ns = pool.progress_ns - begun;
	job->spent_ns += took_ns;
	pool.accounts[job->account].used_ns += took_ns * WEIGHT / job->weight;
	if (!job->orphan) {
		hand_back_soon(job);
	} else {
		pthread_mutex_unlock(&pool.lock);
		job->abandoned(job);
		pthread_mutex_lock(&pool.lock);
	}
	return took_ns;
}

/* Takes the lock. From here on a thread may be denied system calls that only its start needs (allowed_syscalls.h). */
static void begin(void)
{
	(void)pthread_setname_np(pthread_self(), "xts-handshake"); /* for another thread, the call would open a file */
	pthread_mutex_lock(&pool.lock);
	pool.begun_count++;
	pthread_cond_signal(&pool.begun);
}

static void *background_thread(void *runs)
{
	bool can_leave_idle = may_leave_idle();

	set_policy(can_leave_idle ? SCHED_BATCH : IDLE);
	key_in_background();
	begin();
	while (!pool.stopping || !list_empty(&pool.given)) {
		if (pool.queued) {
			(void)run_next(can_leave_idle, runs);
			continue;
		}
		ulp_bells_ring(&pool.pending); /* while the thread sleeps, nobody may be left to do it */
		pool.idle++;
		pthread_cond_wait(&pool.work, &pool.lock);
		pool.idle--;
	}
	pthread_mutex_unlock(&pool.lock);
	return NULL;
}

/* With the lock held: who runs a job, and gets no CPU for it, is an ordinary thread until that is done. */
static void hurry(void)
{
	if (now_ns() - pool.progress_ns <= (uint64_t)ULP_POOL_HELP_MS * NS_PER_MS)
		return;
	for (uint32_t i = 0; i < pool.background_count; i++)
		if (pool.runs[i])
			set_policy_of(pool.threads[i], SCHED_BATCH);
}

/* With the lock held: the reserve thread waits for its turn, and looks again after a while if there are jobs. */
static void wait_for_turn(void)
{
	struct timespec until;

	if (!atomic_load(&unfinished)) {
		pool.reserve_sleeps = true;
		pthread_cond_wait(&pool.reserve_work, &pool.lock);
		pool.reserve_sleeps = false;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(ULP_POOL_HELP_MS * NS_PER_MS);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void)pthread_cond_clockwait(&pool.reserve_work, &pool.lock, CLOCK_MONOTONIC, &until);
}

static void *reserve_thread(void *nothing)
{
	begin();
	while (!pool.stopping) {
		if (pool.queued && pool.reserve_ns) {
			uint64_t took_ns = run_next(false, NULL);

			pool.reserve_ns -= took_ns < pool.reserve_ns ? took_ns : pool.reserve_ns;
			continue;
		}
		pool.reserve_ns = 0;
		ulp_bells_ring(&pool.pending);
		hurry();
		wait_for_turn();
	}
	pthread_mutex_unlock(&pool.lock);
	return nothing;
}

void ulp_pool_help(void)
{
	pthread_mutex_lock(&pool.lock);
	if (pool.queued && !pool.reserve_ns && now_ns() - pool.progress_ns > (uint64_t)ULP_POOL_HELP_MS * NS_PER_MS) {
		pool.reserve_ns = (uint64_t)ULP_POOL_RESERVE_MS * NS_PER_MS;
		pthread_cond_signal(&pool.reserve_work);
	}
	pthread_mutex_unlock(&pool.lock);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static uint32_t cpu_count(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (uint32_t)CPU_COUNT(&cpus);
}

static int add_thread(void *(*run)(void *), bool *runs)
{
	pthread_t *thread = &pool.threads[pool.thread_count];
	int error = pthread_create(thread, NULL, run, runs);

	if (!error)
		pool.thread_count++;
	return -error;
}

/* With the lock held. 0, or -errno if no thread could be started. */
static int start(void)
{
	uint32_t wanted = pool.cpus < THREADS_MAX ? pool.cpus : THREADS_MAX;
	int error = 0;

	for (uint32_t i = 0; i < ACCOUNTS; i++)
		list_init(&pool.accounts[i].jobs);
	list_init(&pool.given);
	list_init(&pool.pending);
	pool.stopping = false;
	key_end_waits(false);
	pool.thread_count = pool.begun_count = pool.background_count = pool.idle = 0;
	pool.reserve_ns = 0;
	while (!error && pool.background_count < wanted) {
		error = add_thread(background_thread, &pool.runs[pool.background_count]);
		pool.background_count += !error;
	}
	if (pool.background_count)
		(void)add_thread(reserve_thread, NULL);
	while (pool.begun_count < pool.thread_count)
		pthread_cond_wait(&pool.begun, &pool.lock);
	return pool.background_count ? 0 : error;
}

/* With the lock held. Each worker holds the pool. */
static void count_spare_cpus(void)
{
	atomic_store(&spare_cpus, pool.cpus > pool.holders ? pool.cpus - pool.holders : 0);
}

int ulp_pool_hold(void)
{
	int r = 0;

	pthread_mutex_lock(&pool.lock);
	if (!pool.holders) {
		pool.cpus = cpu_count();
		r = start();
	}
	pool.holders += !r;
	count_spare_cpus();
	pthread_mutex_unlock(&pool.lock);
	return r;
}

void ulp_pool_release(void)
{
	uint32_t count = 0;

	pthread_mutex_lock(&pool.lock);
	pool.holders--;
	count_spare_cpus();
	if (!pool.holders) {
		pool.stopping = true;
		key_end_waits(true);
		count = pool.thread_count;
		pthread_cond_broadcast(&pool.work);
		pthread_cond_broadcast(&pool.reserve_work);
	}
	pthread_mutex_unlock(&pool.lock);
	for (uint32_t i = 0; i < count; i++)
		pthread_join(pool.threads[i], NULL);
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

void ulp_pool_submit(struct ulp_job *job, struct ulp_bell *bell, uint32_t account, uint32_t weight)
{
	pthread_mutex_lock(&pool.lock);
	job->bell = bell;
	job->account = account % ACCOUNTS;
	job->weight = weight ? weight : 1;
	job->undone = job->orphan = false;
	job->state = ULP_JOB_QUEUED;
	enqueue(job);
	pthread_mutex_unlock(&pool.lock);
}

bool ulp_pool_give(struct ulp_job *job, uint32_t account, uint32_t weight)
{
	pthread_mutex_lock(&pool.lock);
	if (!pool.holders) {
		pthread_mutex_unlock(&pool.lock);
		return false;
	}
	job->bell = NULL;
	job->account = account % ACCOUNTS;
	job->weight = weight ? weight : 1;
	job->undone = false;
	job->orphan = true;
	job->state = ULP_JOB_QUEUED;
	list_append(&pool.given, &job->node);
	count_queued();
	pthread_mutex_unlock(&pool.lock);
	return true;
}

void ulp_pool_move(struct ulp_job *job, struct ulp_bell *bell)
{
	pthread_mutex_lock(&pool.lock);
	if (job->state == ULP_JOB_DONE)
		leave_bell(job);
	job->bell = bell;
	if (job->state == ULP_JOB_DONE)
		hand_back_now(job);
	pthread_mutex_unlock(&pool.lock);
}

bool ulp_pool_returned(struct ulp_job *job)
{
	bool returned;

	pthread_mutex_lock(&pool.lock);
	returned = job->state == ULP_JOB_DONE;
	if (returned) {
		leave_bell(job);
		job->state = ULP_JOB_OWN;
	}
	pthread_mutex_unlock(&pool.lock);
	return returned;
}

bool ulp_pool_drop(struct ulp_job *job)
{
	bool is_free;

	pthread_mutex_lock(&pool.lock);
	if (job->state == ULP_JOB_QUEUED)
		dequeue(job);
	else if (job->state == ULP_JOB_DONE)
		leave_bell(job);
	is_free = job->state != ULP_JOB_RUNNING;
	job->orphan = !is_free;
	pthread_mutex_unlock(&pool.lock);
	return is_free;
}
