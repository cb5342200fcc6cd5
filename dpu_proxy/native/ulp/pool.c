/* The threads, the queues and the bells; see pool.h. */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>

#define THREADS_MAX 8u
#define ACCOUNTS 64u        /* by number, modulo: those that meet share their time */
#define QUEUED_MAX 1024u    /* of an account */
#define WEIGHT 256u
#define NS_PER_MS 1000000u

struct account {
	struct list jobs;        /* the oldest first */
	uint32_t count;
	uint64_t used_ns;        /* for its weight */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_t threads[THREADS_MAX];
	uint32_t holders, thread_count, idle, queued;
	bool stopping;
	bool boosted;            /* the threads are ordinary ones */
	uint64_t progress_ns;    /* when a job was done last, or one came to none */
	uint64_t floor_ns;       /* used_ns of who was served last: a newcomer begins there */
	struct account accounts[ACCOUNTS];
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER };

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- bells ----------------------------------------------------------------------------------------------------------- */

void ulp_bell_init(struct ulp_bell *bell, int event_fd)
{
	list_init(&bell->jobs);
	bell->event_fd = event_fd;
	atomic_init(&bell->rung, false);
}

/* With the lock: the job is its owner's. */
static void hand_back(struct ulp_job *job)
{
	struct ulp_bell *bell = job->bell;

	job->state = ULP_JOB_DONE;
	if (!bell)
		return;
	list_append(&bell->jobs, &job->node);
	if (!atomic_exchange(&bell->rung, true))
		(void)eventfd_write(bell->event_fd, 1);
}

void ulp_bell_serve(struct ulp_bell *bell)
{
	struct ulp_job *job;

	atomic_store(&bell->rung, false);
	do {
		pthread_mutex_lock(&pool.lock);
		job = list_empty(&bell->jobs) ? NULL : list_entry(list_pop(&bell->jobs), struct ulp_job, node);
		pthread_mutex_unlock(&pool.lock);
		if (job)
			job->done(job);
	} while (job);
}

/* --- queues: with the lock ------------------------------------------------------------------------------------------- */

static void dequeue(struct ulp_job *job)
{
	list_remove(&job->node);
	pool.accounts[job->account].count--;
	pool.queued--;
}

static void enqueue(struct ulp_job *job)
{
	struct account *a = &pool.accounts[job->account];

	if (a->count == QUEUED_MAX) {
		struct ulp_job *oldest = list_entry(a->jobs.next, struct ulp_job, node);

		dequeue(oldest);
		oldest->undone = true;
		hand_back(oldest);
	}
	if (!a->count && a->used_ns < pool.floor_ns)
		a->used_ns = pool.floor_ns;
	if (!pool.queued && pool.idle == pool.thread_count)
		pool.progress_ns = now_ns();
	list_append(&a->jobs, &job->node);
	a->count++;
	pool.queued++;
}

/* The next job's; there is one. */
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
	struct account *a = next_account();
	struct ulp_job *job = list_entry(a->jobs.next, struct ulp_job, node);

	pool.floor_ns = a->used_ns;
	dequeue(job);
	job->state = ULP_JOB_RUNNING;
	return job;
}

/* --- threads --------------------------------------------------------------------------------------------------------- */

static void set_policy(pthread_t thread, int policy)
{
	struct sched_param none = { 0 };

	(void)pthread_setschedparam(thread, policy, &none); /* where that is not allowed they are what they were */
}

static void run(struct ulp_job *job)
{
	uint64_t begun = now_ns();
	bool orphan;

	job->run(job);
	pthread_mutex_lock(&pool.lock);
	pool.progress_ns = now_ns();
	job->spent_ns += pool.progress_ns - begun;
	pool.accounts[job->account].used_ns += (pool.progress_ns - begun) * WEIGHT / job->weight;
	orphan = job->orphan;
	if (!orphan)
		hand_back(job);
	pthread_mutex_unlock(&pool.lock);
	if (orphan)
		job->abandoned(job);
}

static void *pool_thread(void *nothing)
{
	bool boosted = false;

	set_policy(pthread_self(), SCHED_IDLE);
	pthread_mutex_lock(&pool.lock);
	for (;;) {
		if (pool.queued) {
			struct ulp_job *job = take();

			boosted |= pool.boosted;
			pthread_mutex_unlock(&pool.lock);
			run(job);
			pthread_mutex_lock(&pool.lock);
			continue;
		}
		boosted |= pool.boosted;
		pool.boosted = false;
		if (boosted) /* all is done */
			set_policy(pthread_self(), SCHED_IDLE);
		boosted = false;
		if (pool.stopping)
			break;
		pool.idle++;
		pthread_cond_wait(&pool.work, &pool.lock);
		pool.idle--;
	}
	pthread_mutex_unlock(&pool.lock);
	return nothing;
}

void ulp_pool_help(void)
{
	pthread_mutex_lock(&pool.lock);
	if ((pool.queued || pool.idle < pool.thread_count) && !pool.boosted &&
	    now_ns() - pool.progress_ns > ULP_POOL_BOOST_MS * NS_PER_MS) {
		pool.boosted = true;
		for (uint32_t i = 0; i < pool.thread_count; i++)
			set_policy(pool.threads[i], SCHED_BATCH);
	}
	pthread_mutex_unlock(&pool.lock);
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

static uint32_t wanted_threads(void)
{
	cpu_set_t cpus;
	uint32_t count = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (uint32_t)CPU_COUNT(&cpus);

	return count < THREADS_MAX ? count : THREADS_MAX;
}

/* With the lock. 0 or -errno: not one. */
static int start(void)
{
	uint32_t wanted = wanted_threads();
	int error = 0;

	for (uint32_t i = 0; i < ACCOUNTS; i++)
		list_init(&pool.accounts[i].jobs);
	pool.stopping = pool.boosted = false;
	pool.thread_count = pool.idle = 0;
	while (!error && pool.thread_count < wanted) {
		error = pthread_create(&pool.threads[pool.thread_count], NULL, pool_thread, NULL);
		if (!error)
			(void)pthread_setname_np(pool.threads[pool.thread_count++], "xts-handshake");
	}
	return pool.thread_count ? 0 : -error;
}

int ulp_pool_hold(void)
{
	int r = 0;

	pthread_mutex_lock(&pool.lock);
	if (!pool.holders)
		r = start();
	pool.holders += !r;
	pthread_mutex_unlock(&pool.lock);
	return r;
}

void ulp_pool_release(void)
{
	uint32_t count = 0;

	pthread_mutex_lock(&pool.lock);
	if (!--pool.holders) {
		pool.stopping = true;
		count = pool.thread_count;
		pthread_cond_broadcast(&pool.work);
	}
	pthread_mutex_unlock(&pool.lock);
	for (uint32_t i = 0; i < count; i++)
		pthread_join(pool.threads[i], NULL);
}

/* --- jobs ------------------------------------------------------------------------------------------------------------ */

void ulp_pool_submit(struct ulp_job *job, struct ulp_bell *bell, uint32_t account, uint32_t weight)
{
	pthread_mutex_lock(&pool.lock);
	job->bell = bell;
	job->account = account % ACCOUNTS;
	job->weight = weight ? weight : 1;
	job->undone = job->orphan = false;
	job->state = ULP_JOB_QUEUED;
	enqueue(job);
	if (pool.idle)
		pthread_cond_signal(&pool.work);
	pthread_mutex_unlock(&pool.lock);
}

void ulp_pool_move(struct ulp_job *job, struct ulp_bell *bell)
{
	pthread_mutex_lock(&pool.lock);
	if (job->state == ULP_JOB_DONE)
		list_remove(&job->node);
	job->bell = bell;
	if (job->state == ULP_JOB_DONE)
		hand_back(job);
	pthread_mutex_unlock(&pool.lock);
}

bool ulp_pool_returned(struct ulp_job *job)
{
	bool returned;

	pthread_mutex_lock(&pool.lock);
	returned = job->state == ULP_JOB_DONE;
	if (returned) {
		list_remove(&job->node);
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
		list_remove(&job->node);
	is_free = job->state != ULP_JOB_RUNNING;
	job->orphan = !is_free;
	pthread_mutex_unlock(&pool.lock);
	return is_free;
}
