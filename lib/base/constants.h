/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's constants: one table.
 *
 * Each entry has the unit (the end of the name, or in brackets), the effect, and the source:
 *
 *   Measured:   by which program, on which machine. "Zen 5" is two cores of an AMD EPYC in a
 *               virtual machine: docs/decisions.md. "Pretend device": tests/pretend/
 *   Derived:    from a measured figure, by the arithmetic that is given
 *   Chosen:     not measured: why a value of this order is right
 *   Estimated:  not measured, but it should be: from which figures, or how to measure it
 *   Given:      by the kernel, a library or a protocol
 *
 * Not here: sizes that are part of a layout in shared memory or of a message; limits of input;
 * defaults of settings (conf/conf.c); the sizes at which algorithms change (table of
 * coll/select.c). tests/lint/constants.sh checks that each entry has a source, and that no other
 * file of lib/ defines a time.
 */
#ifndef TUTTI__BASE_CONSTANTS_H
#define TUTTI__BASE_CONSTANTS_H

#include <stddef.h>
#include <stdint.h>

/* ---- waiting: direct calls ---- */

/* [polls] A look is this many polls of one word, about a microsecond. It is the unit of the next
   constants. Derived: a poll takes some 20 ns with its pause (Zen 5). */
#define TUTTI__CLOSE_LOOKS 50

/* [looks] If each rank has a processor of its own: looks before a waiting rank yields, about 1.5
   ms. Chosen: long compared with a wake-up, which takes 38 us (Zen 5). */
#define TUTTI__SPIN_LOOKS 1500

/* [yields] The number of yields after these looks, before the rank sleeps. Chosen: in each yield,
   every other thread of the processor runs once. */
#define TUTTI__YIELD_LOOKS 100

/*
 * If ranks share processors: the time of all yields in one stage of a call. It is about the time of
 * a wake-up, or one turn of four to eight ranks. Longer yielding takes processor time from the
 * peers for which the stage waits.
 * Measured: 8 ranks on one processor and on two, 8 bytes after an MPI barrier, Zen 5.
 * Tried, on one processor: 100 yields for each word that the stage waits for take 43 us instead of
 * 25; no yields take 61 us. On two processors, both this time and 100 yields for each word take 15
 * us; a time below one turn takes 25 us. With one limit for all stages of a call together, a call
 * takes 0.35 of MPI's time from 512 bytes to 4 MiB, instead of 0.25.
 */
#define TUTTI__YIELD_NS 12000u

/*
 * The sleep on a word lasts the time waited so far, divided by SLEEP_SHARE, but at least SLEEP_US
 * and at most SLEEP_MOST_US. The limit exists because a wake-up can be missed (boot/machine.h), and
 * because deaths are checked between sleeps.
 * Chosen: a missed wake-up costs a 16th of the wait; 2 s of waiting take a hundred sleeps instead
 * of a thousand. Measured: 2 s in a barrier take 4 to 6 ms of a processor (Zen 5).
 */
#define TUTTI__SLEEP_US 2000
#define TUTTI__SLEEP_MOST_US 50000
#define TUTTI__SLEEP_SHARE 16

/*
 * The sleep in a call between hosts. Over MPI no message wakes the sleeper: a sleep lasts
 * FAR_SLEEP_US in the first FAR_EARLY_US of the wait, then a 16th of the time waited, at most
 * FAR_SLEEP_MOST_US. So a late message costs a 16th of the wait. If messages wake the sleeper, and
 * the call does not also wait for shared memory, the limits of SLEEP above apply after
 * FAR_EARLY_US.
 * Measured: 2 s in a barrier of two hosts, Zen 5: some 570 polls, 13 to 17 ms of a processor; with
 * UCX's descriptor 4 ms. Tried: sleeps of at most 2 ms; the barrier takes 25 ms of a processor over
 * UCX, 32 ms over Open MPI's TCP.
 */
#define TUTTI__FAR_SLEEP_US 100
#define TUTTI__FAR_EARLY_US 5000
#define TUTTI__FAR_SLEEP_MOST_US 4000

/* The length of a sleep if there is no single word to sleep on, and the call uses no transport
   between hosts: for example, work on a device. Chosen: shorter than a message over a network and
   the wake-up that follows it; a thread that polls more often takes a core. */
#define TUTTI__DIRECT_POLL_US 20

/* [ns, ns, ns, looks or steps] A yield that takes longer than CROWDED_YIELD_NS shows that another
   program computes on this rank's processor. For some time, from CROWDED_LEAST_NS to CROWDED_NS
   (wait_loop.c), a waiter sleeps after CROWDED_LOOKS looks, or after as many steps of the engine.
   Chosen: the scheduler's turns take 1 to 4 ms, and a yield without other programs takes less than
   1 us. Tried: always CROWDED_NS. Ranks that share a processor then often sleep, although all of
   them yield: 8 bytes on two hosts with two ranks each, on two processors in all, took 190 us
   instead of 16 to 40. */
#define TUTTI__CROWDED_YIELD_NS 500000u
#define TUTTI__CROWDED_LEAST_NS 5000000u
#define TUTTI__CROWDED_NS 100000000u
#define TUTTI__CROWDED_LOOKS 20

/* [looks; ns] Between hosts, a waiter that spins yields once in SHARE_LOOKS looks. A yield that
   takes longer than SHARED_YIELD_NS shows that other ranks use this processor, and yield as well.
   For the next CROWDED_NS, the waiter yields after each look, and such a look counts as SHARE_LOOKS
   more. Chosen: a look between hosts takes
   about 0.5 us, a yield 0.3 us if no other thread runs, and 3 us or more if one does.
   Measured: docs/decisions.md, "Waiting". */
#define TUTTI__SHARE_LOOKS 8
#define TUTTI__SHARED_YIELD_NS 3000u

/* ---- waiting: requests ---- */

/* [steps] On one host: the number of engine steps without effect before a waiter yields: 20 us.
   Derived: a step takes about 50 ns (Zen 5). A wake-up takes 38 us, and the spinning should take
   half of this time. With several hosts the number is SPIN_LOOKS, as in direct calls. There a
   sleep may last FAR_SLEEP_US although the message has arrived. */
#define TUTTI__SPIN_STEPS 400

/* [yields] The number of yields before a waiter leaves the work to the engine's thread and sleeps.
   Chosen: as YIELD_LOOKS. */
#define TUTTI__YIELD_STEPS 100

/* [steps] While a waiter's steps move other requests, it checks its deadline once in this number of
   steps. Chosen: reading the clock takes 25 ns, and a step with an effect some 1000 ns. */
#define TUTTI__BUSY_CHECK 256

/* The sleep between two polls of requests of several communicators. Such requests have no common
   word. Chosen: such waits are rare. */
#define TUTTI__MIXED_NAP_US 100

/* [yields; us] A thread that must have the engine's token yields at most TOKEN_YIELDS times. After
   that it takes naps of TOKEN_NAP_US until the token is free. Chosen: no thread keeps the token for
   long. */
#define TUTTI__TOKEN_YIELDS 100
#define TUTTI__TOKEN_NAP_US 50

/* ---- waiting: the engine's thread ---- */

/* The nap of the engine's thread if a socket is readable and another thread has the token. Chosen:
   that thread reads the socket within SIDE_EVERY steps. If the engine's thread slept until it is
   woken, each wake-up would cost two context switches. */
#define TUTTI__BUSY_NAP_US 50

/* [polls] The number of polls of the peer's `sleeping` before the peer's doorbell is rung: about
   300 ns. Within this time the peer may pass from its submission to its wait. Chosen: the ringing
   costs this rank a microsecond, and the peer 38 us. */
#define TUTTI__RING_LOOKS 15

/* The sleep between two polls of work in flight that advances only if it is polled, such as work on
   a device. Chosen: no caller waits for this thread. */
#define TUTTI__POLL_SLEEP_US 50

/* The sleep between two polls of the engine's thread while another thread has the token. Chosen: if
   that thread leaves work behind, it wakes the engine's thread. */
#define TUTTI__TAKEN_NAP_US 1000

/* The time from a submission to the wake-up of the engine's thread. Chosen: longer than the time
   from a submission to a wait of the program, and shorter than the computation of a program that
   does not wait. While the thread wakes in vain, the time doubles up to ALARM_MOST_US. Chosen: a
   wake-up in vain takes 12 us of the waiter's processor (engine/steps.c), a hundredth of this time.
   A program that computes for longer than ALARM_US before it waits sets the time back. */
#define TUTTI__ALARM_US 100u
#define TUTTI__ALARM_MOST_US 1600u

/* The longest sleep between two checks of deadlines and stalls. Chosen: TUTTI_TIMEOUT is in
   seconds, and an idle engine should not use the processor. */
#define TUTTI__TICK_MS 500

/* [steps] A busy owner of the token polls the sockets in every n-th step. Chosen: a poll is a
   system call, a step takes about 50 ns. */
#define TUTTI__SIDE_EVERY 16

/* ---- waiting: devices ---- */

/* The nap of a thread that waits until a device's work has ended: at the end of a communicator, and
   after an error. Chosen: such waits are rare. */
#define TUTTI__DRAIN_NAP_US 50
#define TUTTI__QUIESCE_NAP_US 20

/* While NCCL connects: the nap between two polls, and the interval at which the ranks exchange
   their status. Chosen: if a rank cannot connect, NCCL on the other ranks waits for this rank, and
   reports nothing. These ranks receive the error after one interval. */
#define TUTTI__CONNECT_NAP_US 100
#define TUTTI__CONNECT_ROUND_NS 100000000u

/* The nap between two polls of an abort, or of the closing of NCCL's communicator. Chosen: both are
   rare. */
#define TUTTI__NCCL_NAP_US 100

/* ---- waiting: set-up ---- */

/* MPI has no word to sleep on. In set-up a rank yields for BUSY_NS and then naps. Chosen: ranks
   start at different times, and a late rank needs the processor. */
#define TUTTI__MPI_MEET_BUSY_NS 2000000u
#define TUTTI__MPI_MEET_NAP_US 200

/* TUTTI_TRANSPORT=auto under MPI: how long a host's first message over UCX may take, with its
   connection, before MPI is taken. Chosen: a connection takes milliseconds; a firewall sends no
   answer. */
#define TUTTI__FASTER_REACH_NS 1000000000u

/* The measurement that follows this first message: the number of round trips over UCX and over MPI,
   and the limit of their total time. Chosen: the shortest of eight varies little. */
#define TUTTI__FASTER_TRIPS 8u
#define TUTTI__FASTER_NS 10000000u

/* [halves] MPI is taken if UCX's round trip takes more than FASTER_MARGIN_HALVES / 2 of the time of
   MPI's round trip. Chosen: see docs/decisions.md. */
#define TUTTI__FASTER_MARGIN_HALVES 3u

/* How often a wait for sockets calls the checks of boot/net.h. Chosen: during set-up, this is the
   delay before a rank detects another rank's error. */
#define TUTTI__NET_CHECK_MS 100

/* How often an open gate (boot/gate.h) calls these checks while connections arrive. Chosen: as
   NET_CHECK_MS. */
#define TUTTI__GATE_CHECK_MS 100u

/* How long one address of a gate is tried in the first round. The time doubles in each further
   round, up to REACH_MOST_MS. Chosen: a round trip takes less than a second; a filtered address
   never answers. */
#define TUTTI__REACH_FIRST_MS 1000u
#define TUTTI__REACH_MOST_MS 60000u

/* The pause between two rounds. The first pause takes REACH_PAUSE_MS. Each further pause is twice
   as long as the previous pause, up to REACH_PAUSE_MOST_MS. Chosen: rank 0 may start seconds later
   than the others, and each rank then connects within a quarter second. */
#define TUTTI__REACH_PAUSE_MS 10u
#define TUTTI__REACH_PAUSE_MOST_MS 250u

/* How often a rank checks whether the launcher's exchange of rank 0's address has ended. Chosen:
   the exchange takes milliseconds, or waits for ranks that have not started. */
#define TUTTI__PM_PAUSE_MS 1u

/* If a Unix socket's listener does not exist yet, or its queue is full: the pause between two
   attempts to connect. The pause doubles, up to the second value. Chosen: if the machine is not
   overloaded, a listener accepts within a millisecond. */
#define TUTTI__UNIX_PAUSE_MS 1u
#define TUTTI__UNIX_PAUSE_MOST_MS 20u

/* The nap after an accept or a send that failed because the kernel lacked a resource. Chosen: other
   processes release the resource, and a loop without a nap would take a core. */
#define TUTTI__RESOURCE_NAP_MS 1u

/* The naps of a gate that answers each guest with a refusal. GATE_NO_FILE_MS: while no descriptor
   is free for a guest. GATE_REST_MS: after each batch of at most GATE_STRANGERS accepted
   connections. Chosen: a flood of connections must not take a processor of the job. With
   GATE_REST_MS the gate still serves 3200 guests a second. */
#define TUTTI__GATE_NO_FILE_MS 100u
#define TUTTI__GATE_REST_MS 20u

/* ---- meeting by env:// or a launcher's variables: boot/meet_job.c ---- */

/* [ports] The number of ports above MASTER_PORT that are tried. Chosen: if torchrun's agent has
   MASTER_PORT itself, sixteen jobs may run on a host. */
#define TUTTI__JOB_PORTS 16u

/* How long rank 0 tries to listen at its port, and the pause between two tries. Chosen: if the job
   was restarted, the earlier rank 0 may still have the port. */
#define TUTTI__JOB_PORT_MS 5000u
#define TUTTI__JOB_PORT_PAUSE_MS 100u

/* After a gate of another job has refused a rank: how long the rank tries again. The other job may
   be an earlier job that is about to leave the port. Chosen: as JOB_PORT_MS. */
#define TUTTI__JOB_OTHER_MS 5000u

/* If a gate of the job has greeted a rank, and then no process listens at the port: how long the
   rank tries again. Chosen: longer than a retry of the connection, which takes less than a second.
   After a death the other ranks should end within 2 s. */
#define TUTTI__JOB_GONE_MS 1500u

/* An address is tried for REACH_FIRST_MS in the first round. The time doubles in each further
   round, up to JOB_TRY_MOST_MS. Chosen: within this time a lost packet of a connection is repeated
   several times. */
#define TUTTI__JOB_TRY_MOST_MS 20000u

/* If there are several ports: how long an address is tried in the first round, and at most in later
   rounds. Some ports may belong to services that do not answer. Chosen: all ports are tried within
   some seconds. */
#define TUTTI__JOB_SEARCH_MS 250u
#define TUTTI__JOB_SEARCH_MOST_MS 2000u

/* A name is looked up again after this time. Chosen: a host may start later, or may start again
   with another address. */
#define TUTTI__JOB_LOOKUP_MS 5000u

/* ---- grace periods: how long a rank waits for the reason of a failure ---- */

/* After a failure without a known cause: the wait for a peer's report of the cause. Also, if a rank
   on another host has left: how long this rank still waits for its data (include/tutti/comm.h
   states this time). Chosen: a report crosses a tree of sockets in milliseconds; the rest is for
   loaded machines. */
#define TUTTI__NEWS_MS 300

/* The same after a timeout on a device. A device does not report the rank that it waits for.
   Chosen: a peer finds its own timeout up to TICK_MS later. */
#define TUTTI__DEVICE_NEWS_MS 500

/* [polls] After a time limit: the number of polls for data that have arrived while this process was
   stopped. Chosen: a poll of UCX or MPI reads only a part of a message, at least some KiB. Without
   data, this number of polls takes about a millisecond. */
#define TUTTI__LAST_POLLS 1000

/* The interval of polls in these waits. Chosen: short compared with the waits. */
#define TUTTI__NEWS_POLL_US 1000

/* After a request's deadline, a rank that cannot name the culprit waits for the report of a rank
   that can. Rank 0 waits for this time, other ranks for twice this time. Chosen: a peer finds its
   own timeout up to TICK_MS later. */
#define TUTTI__CULPRIT_MS 500u

/* The deadline of work queued in a CUDA stream is later than a call's deadline by GRACE. If the
   rank cannot name the culprit, it waits longer by UNSURE. Chosen: direct calls and waiters have
   the earlier deadline, and their reports have more details. These reports arrive within twice
   CULPRIT_MS after the earlier deadline. */
#define TUTTI__QUEUED_GRACE_NS 1500000000u
#define TUTTI__QUEUED_UNSURE_NS 1000000000u

/* After a conflict between submission groups: how long the ranks may take to submit the missing
   tensors before the coordinator rejects the groups. Chosen: the tensors of one step are submitted
   within milliseconds, and a wrong program should get its error at once. */
#define TUTTI__CONFLICT_NS 100000000u

/* After the failure of a strict gate: how long it stays open to send the reason to late ranks.
   Chosen: most ranks of one launcher start within a second. */
#define TUTTI__GATE_GRACE_MS 1000u

/* A guest's connection has ended before the guest confirmed. If the guest does not connect again
   within this time, it is reported lost. Chosen: twice REACH_PAUSE_MOST_MS. */
#define TUTTI__GATE_AGAIN_MS 500u

/* If a rank cannot meet the other ranks: how long it waits until the id's maker or the store
   reports the reason. Chosen: as GATE_GRACE_MS. */
#define TUTTI__REASON_MS 1000u

/* The interval at which such a rank reads the store. Chosen: each read may be a request to a
   server. */
#define TUTTI__REASON_POLL_MS 50u

/* How long sending or receiving one message of set-up may take: STAR_MESSAGE_MS between rank 0 and
   another rank, ID_MESSAGE_MS at the maker of a unique id. Chosen: a stopped rank must not stop the
   other ranks; the second wait is in a thread that no rank waits for. */
#define TUTTI__STAR_MESSAGE_MS 1000u
#define TUTTI__ID_MESSAGE_MS 10000u

/* Longest time for connecting the tree of sockets after the first exchange. Chosen: at this point
   all ranks run, so after a minute the set-up has failed. TUTTI_TIMEOUT may be longer. */
#define TUTTI__BOOT_CONNECT_MS 60000u

/* ---- grace periods: how long closing and aborting wait ---- */

/* How long closing a communicator waits for a thread that is inside a direct call. Chosen: the
   thread detects the end within SLEEP_MOST_US, and its present step takes some milliseconds. A
   callback of the program may take longer. */
#define TUTTI__END_DIRECT_MS 1000u

/* How long the closing of an engine waits for space in peers' rings, and for the device. Chosen: a
   peer that does not read for this time is stopped or dead. */
#define TUTTI__FLUSH_MS 200u

/* How long the closing of the side channel waits until its messages have left. Chosen: as
   FLUSH_MS. */
#define TUTTI__SIDE_LINGER_MS 200u

/* Longest wait for device work after an error. Measured: pretend device, beside 30 busy processes,
   Zen 5. Tried: 100 ms; the device's threads took longer. */
#define TUTTI__QUIESCE_NS 1000000000u

/* If a lane's communicator has ended: how long the lane's MPI messages may still arrive before
   their requests are abandoned. Chosen: messages in flight need less; a peer that has received the
   error sends no further messages of the lane. */
#define TUTTI__MPI_GIVE_UP_NS 100000000u

/* The same for UCX, before an endpoint is forced to close. Chosen: as MPI_GIVE_UP_NS. */
#define TUTTI__UCX_GIVE_UP_NS 100000000u

/* The same for a peer that is at work on the buffers of this rank's call: a fixed time, and a time
   for each byte of the call. Chosen: 1 ns for a byte is 1 GB/s; half a second is enough for a peer
   that is not scheduled at once. If the peer has died at its work, this rank waits for all of this
   time. So the fixed time is below a second: a death must be reported within a second. */
#define TUTTI__SHM_GIVE_UP_NS 500000000u
#define TUTTI__SHM_GIVE_UP_NS_PER_BYTE 1u

/* After the loss of a UCX endpoint: how long the side channel may take to report the reason before
   the call fails without a reason. The time counts anew after this time without a poll. Chosen:
   deaths and departures are reported within milliseconds; beside busy processes, within a few
   scheduling intervals. A waiting call polls at least every TICK_MS, which is half of this time. */
#define TUTTI__UCX_NEWS_NS 1000000000u

/* How long closing waits for the endpoints' flushes. The peers must poll meanwhile. Chosen: as
   FLUSH_MS; the messages themselves have left before. */
#define TUTTI__UCX_CLOSE_NS 200000000u

/* How long a rank waits for an abort of NCCL, which may never return. Chosen: an abort that returns
   takes milliseconds. */
#define TUTTI__NCCL_ABORT_NS 3000000000u

/* How long closing NCCL's communicator waits for the other ranks of the host. Chosen: as FLUSH_MS.
   A close that has not ended is checked again whenever another communicator is opened or closed. */
#define TUTTI__NCCL_CLOSE_US 200000

/* ---- checks ---- */

/* Deadlines of work queued in a CUDA stream are checked 8 times in TUTTI_TIMEOUT, but at least once
   a second. After a failure they are checked every CHECK_FAILED_US. Chosen: a missed deadline is
   detected at most an eighth of TUTTI_TIMEOUT late. */
#define TUTTI__CHECKS_PER_DEADLINE 8
#define TUTTI__CHECK_MOST_NS 1000000000u
#define TUTTI__CHECK_FAILED_US 10000

/* [ns] After this time a rank reports a wait without a timeout to rank 0. Rank 0 then searches for
   ranks that wait for each other, at most once in this time. Chosen: few waits of a job in progress
   take so long, and a user who watches the job does not yet assume that it hangs. A search of 4096
   ranks takes 0.2 s. */
#define TUTTI__STUCK_NS 1000000000u

/* Shortest time between two checks for stalls. Chosen: a check takes some microseconds. */
#define TUTTI__STALL_CHECK_NS 100000000u

/* Shortest time between two dumps of a rank for stalls. Chosen: several ranks report the same
   stall, and each of them asks all ranks for dumps. */
#define TUTTI__STALL_DUMP_NS 1000000000u

/* If the trace's file does not grow, a rank that stops its trace waits at most this long for the
   file's lock. The rank tries to take the lock at intervals of NAP_US. Chosen: a process that holds
   the lock writes all the time. Other hosts see the written bytes when the kernel flushes them,
   after 30 s. */
#define TUTTI__TRACE_LOCK_NS 60000000000u
#define TUTTI__TRACE_LOCK_NAP_US 5000

/* [polls] The number of polls of the announcement of a core group's leader. If the announcement has
   not arrived after them, the group's ranks are polled, to find the late rank. Chosen: polling
   takes cache lines from ranks that are at work, but a rank that has left must be found. */
#define TUTTI__GROUP_LOOKS 40

/* TCP between hosts: keep-alive probes begin after IDLE and follow at INTERVAL. The peer's host is
   lost after PROBES probes without an answer, or if sent bytes are not acknowledged for
   USER_TIMEOUT. Chosen: the error comes after 4 to 5 s; within this time a lost packet is sent
   again several times. If only a process is stopped, its host's kernel still answers. */
#define TUTTI__TCP_IDLE_S 1
#define TUTTI__TCP_INTERVAL_S 1
#define TUTTI__TCP_PROBES 4
#define TUTTI__TCP_USER_TIMEOUT_MS 4000

/* While requests are pending: how often a rank checks whether the other hosts read its messages.
   Chosen: several times in USER_TIMEOUT; a check is two system calls for each host. */
#define TUTTI__SIDE_CHECK_NS 900000000u

/* ---- amounts: engine and fusion ---- */

/* A brief step does no more than this: about 10 us of work. Derived: an allreduce of 64 KiB takes 2
   to 5 us (docs/results.md, Zen 5), and packing and unpacking about as long. */
#define TUTTI__BRIEF_BYTES 65536

/*
 * The largest fused bucket, if TUTTI_FUSION_BYTES is auto. On one host it should stay in the caches
 * between packing, reducing and unpacking.
 * Measured, one host: bench/tutti_gradients, ResNet-50, 2 ranks, Zen 5: 256 KiB 9.2 ms, 1 MiB 8.1,
 * 4 MiB 11, 64 MiB 27.
 * Estimated, several hosts and devices: larger buckets save messages and launches;
 * bench/tutti_tune, and tests/gpu/measure.sh on a GPU.
 */
#define TUTTI__FUSE_HOST_BYTES ((uint64_t)1 << 20)
#define TUTTI__FUSE_HOSTS_BYTES ((uint64_t)64 << 20)
#define TUTTI__FUSE_DEVICE_BYTES ((size_t)16 << 20)

/* The largest bucket of a plan between hosts, if TUTTI_FUSION_BYTES is auto. Chosen: a backward
   pass has several buckets, so that communication begins early; each takes much longer than the
   latency. */
#define TUTTI__PLAN_HOSTS_BYTES ((uint64_t)4 << 20)

/* If PARTS buckets would have PART_BYTES or more each, a plan between hosts has at least PARTS
   buckets. With one bucket, all tensors would wait for the last tensor. Chosen: an eighth of the
   wire's time stays exposed. */
#define TUTTI__PLAN_PARTS 8
#define TUTTI__PLAN_PART_BYTES ((uint64_t)64 << 10)

/* [steps] The number of equal steps after which a plan begins. The number doubles after each plan
   that did not last, up to the second value. Chosen: a plan begins early, but not after a
   coincidence. */
#define TUTTI__PLAN_STEPS 3
#define TUTTI__PLAN_STEPS_MOST 1024
/* [names] The largest number of tensors that can be learned. Chosen: far more than a model has. */
#define TUTTI__PLAN_NAMES_MOST 65536
/* [ns] A plan stops if a bucket has some of its tensors, and this rank submits no further tensor
   for this time. WAIT: while a thread waits for a tensor of the bucket. TEST: while a thread tests
   such a tensor repeatedly. REST: otherwise. After a rank has left, a bucket between hosts fails if
   it makes no progress for REST. Chosen: WAIT is long compared with the pauses between submissions
   of one step, and short compared with a step. A program that tests may compute between two
   tests. */
#define TUTTI__PLAN_WAIT_NS 5000000
#define TUTTI__PLAN_TEST_NS 100000000
#define TUTTI__PLAN_REST_NS 1000000000u

/* [lanes] The lanes of a plan, if a round trip between hosts takes PLAN_RTT or longer, and the link
   carries more than CHUNK_BYTES in this time. Otherwise a plan has one lane. Measured with two
   hosts at 1 Gbit/s, with and without 1 ms of delay. With it, 161 gradients of 6 MB together take
   55 ms instead of 66, and 200 gradients of 16 KiB 30 ms instead of 43. Without it there was no
   gain. Chosen: PLAN_RTT is far above the round trip in one data centre, where processors are the
   limit. Beside other work on two virtual processors, a link without a limit was slower with two
   lanes. */
#define TUTTI__PLAN_LANES 2
#define TUTTI__PLAN_RTT_NS 200000

/* [places] The number of places for freed requests, a power of two; a request has about 450 bytes.
   Chosen: of 1000 names, about 220 share a place, and about 110 requests are allocated anew in each
   step. Without these places, malloc takes 330 of 2100 instructions of a planned tensor. */
#define TUTTI__SPARE_REQUESTS 4096

/* [submissions] While a bucket of a plan is in flight, the engine takes a step after at most this
   many submissions. Chosen: a step takes about as long as eight submissions. */
#define TUTTI__PLAN_LOOKS 16

/* The size of a lane's first memory for fused buckets. The size doubles as needed. Chosen: small,
   because each lane of each communicator has it. */
#define TUTTI__FUSE_FIRST_BYTES 65536

/*
 * [buckets] The largest number of pending completions: enough to keep the device busy. A larger
 * number makes buckets smaller.
 * Measured: pretend device, 160 tensors of 16 KiB, one each 0.1 ms, NCCL at 0.2 GB/s. With 4, 8 and
 * 16 completions the tensors take 38, 50 and 65 calls, and 30, 34 and 41 ms. Not measured on a GPU.
 */
#define TUTTI__MOST_COMPLETIONS 8

/* [events] The number of device events that set-up makes: for requests in flight with a stream, and
   for pending completions. Chosen: larger than the number of layers of a network; further events
   are made when needed. */
#define TUTTI__ENGINE_EVENTS 1024

/* [names] The largest number of tensors and ranks that a warning or an error names; the others are
   only counted. Chosen: users do not read a longer line. */
#define TUTTI__NAMED 8

/* [slots] The largest number of slots of a channel between devices. Chosen: as TUTTI_CREDITS'
   default. */
#define TUTTI__GPU_DIRECT_CREDITS 4

/* [pieces] Pieces in one launch that packs or unpacks a message; they are on the stack. Chosen: a
   message of a schedule has few blocks. */
#define TUTTI__GPU_DIRECT_PIECES 16

/* ---- statistics ---- */

/* The interval at which TUTTI_STATS_FILE is written. Chosen: collectors read every 15 s or less
   often. */
#define TUTTI__STATS_FILE_MS 5000u

/* A client of TUTTI_STATS_PORT is closed after this time. Chosen: an answer has some kilobytes, and
   stays on this machine. */
#define TUTTI__STATS_CLIENT_MS 2000u

/* [communicators] The number of ended communicators that the statistics (file and endpoint) still
   list. Chosen: each communicator takes some kilobytes there. */
#define TUTTI__STATS_ENDED 32u

/* ---- amounts: node operations in shared memory ---- */

/* [ranks] With exactly this number of ranks p, the root of a reduce does all the reduction. Each of
   n bytes is copied once, into a slot, and the root reads (p - 1) n bytes. Derived: with shares the
   root would read 2 (p - 1) / p n bytes, but part of the data would be copied twice, and there
   would be one more stage. With two ranks, a reduction in shares is faster, because the results are
   written back into the peer's slot: node/shm/chunks.c. */
#define TUTTI__SHM_ROOT_ALONE 3

/* Block of a reduction that writes its results back into the peers' slots, while the next block's
   lines are fetched. Measured: bench/tutti_allreduce, 2 ranks, Zen 5: table in
   node/shm/chunks.c. */
#define TUTTI__SHM_BACK_BLOCK_BYTES 4096

/* Block of a zero-copy reduction: BLOCK, or SMALL if the results exceed the caches. In the second
   case the buffers of the p ranks are prefetched, each of them AHEAD / p bytes before its use.
   Measured: bench/tutti_allreduce, 2 ranks, Zen 5: table in node/shm/zero.c. */
#define TUTTI__SHM_ZERO_BLOCK_BYTES 8192
#define TUTTI__SHM_ZERO_SMALL_BYTES 512
#define TUTTI__SHM_ZERO_AHEAD_BYTES 16384

/* Block of a zero-copy reduction in two levels: each group has sums of this size. Derived: the sums
   of 16 groups fit in a first-level cache of 32 KiB. */
#define TUTTI__SHM_SUM_BYTES 2048

/* [pages] If the shares of a zero-copy buffer have at least this size, they begin and end at page
   boundaries. Derived: shares then differ by at most 6 %. Measured, 256 KiB in place: 1.02 instead
   of 1.10 of the time of aligned buffers (docs/decisions.md). */
#define TUTTI__SHM_PAGED_SHARE 16

/* If the system does not report the size of an L3 cache: the assumed size. Chosen: a usual size. */
#define TUTTI__SHM_L3_BYTES ((uint64_t)32 << 20)

/* ---- amounts: reductions ---- */

/* [elements] A fold of fewer elements is one call. A longer fold begins with a short call, which
   ends where a cache line of the destination begins. Measured: in one call, sums whose destination
   was 16 bytes behind the start of a line took 1.5 times (4 KiB) and 1.2 times (128 KiB) as long as
   aligned sums; Zen 5, vectors of 64 bytes. */
#define TUTTI__REDUCE_SHORT 512

/* Block of one array in a fold by a function of two arrays (reduce/fold_pairs.c). Derived: three
   blocks fit in a first-level cache of 32 KiB. */
#define TUTTI__REDUCE_PAIRS_BYTES 4096

/* [blocks] The number of thread blocks per multiprocessor that fill a device. Chosen: 8 blocks of
   256 threads are the 2048 threads of a multiprocessor. */
#define TUTTI__CUDA_BLOCKS 8

/* ---- amounts: NCCL ---- */

/* [calls] The largest number of calls in one group of NCCL; with more than 32 ranks on a host:
   twice the number of ranks. Chosen: an alltoall of a host is one group. */
#define TUTTI__NCCL_GROUP_CALLS 64

/* Alignment of a rank's share of the stage. Given: NCCL is slower with a smaller alignment. */
#define TUTTI__NCCL_STAGE_ALIGN 16

/* Granularity of memory from NCCL. Given: NCCL registers whole pages, with all other data in them.
   If NCCL takes the memory from cudaMalloc, an allocation of this size has pages of its own. */
#define TUTTI__NCCL_ALLOC_BYTES ((size_t)2 << 20)

/* [operations] The number of operations, queued in CUDA streams, for which set-up makes events; a
   power of two. Chosen: more than a program usually has in flight; further events are made when
   needed. */
#define TUTTI__NCCL_OVERDUE 128

/* ---- amounts: schedules ---- */

/* [chunks] The number of chunks of a hierarchical allreduce on a device that are in flight from
   reduce-scatter to allgather, inclusive. Derived: at one time the node operations, the copy down,
   the messages and the copy up work on one chunk each (coll/allreduce_hierarchical.c). Measured:
   tests/unit/exec/device_share, pretended rates of 20 MB/s, two hosts: 92 to 99 % of the slowest
   stage's bandwidth. */
#define TUTTI__STAGE_TRIPS 4

/* [entries] The size of the hash table of schedules for messages between two ranks; a power of two.
   Chosen: a rank has few neighbours; for more, the table's chains become longer. */
#define TUTTI__CACHE_PAIRS 64

/* ---- amounts: sockets ---- */

/* The number of bytes that are read from a socket at once, and the number of such pieces that are
   read from one link before the other links are read. Chosen: 1 MiB, less than a millisecond. */
#define TUTTI__SIDE_PIECE_BYTES ((size_t)64 << 10)
#define TUTTI__SIDE_PIECES 16

/* [events] Events taken from epoll at once. Chosen: the next call returns the rest. */
#define TUTTI__SIDE_EVENTS 64

/* A message's body of up to this size is allocated at once, and its memory is kept for the next
   message. Chosen: most control messages are smaller. */
#define TUTTI__SIDE_SMALL_BYTES ((size_t)64 << 10)

/* Limit of the messages that wait in a link, for a peer that does not read. Chosen: control
   messages need far less. */
#define TUTTI__SIDE_WAITING_BYTES ((size_t)256 << 20)

/* [connections] The largest number of a gate's open connections that have not shown the token. The
   gate also accepts at most this number of connections before it checks deadlines. Chosen: more
   than a port scanner opens at a time. */
#define TUTTI__GATE_STRANGERS 64u

/* [tries] If no descriptor is free: how often a gate waits until another thread has closed its
   trial descriptors. That thread is inside tutti__net_files_left. Chosen: each wait is for one
   thread. */
#define TUTTI__GATE_TRIALS 8u

/* [messages] The largest number of messages that wait for the program's log callback. Chosen: a job
   writes this number of messages in some seconds. */
#define TUTTI__LOG_WAITING 1024

/* ---- amounts: memory ---- */

/* [parts, ranks] The arenas of the first communicator take at most half of the addresses; the
   arenas of each further communicator take at most 1/SPAN_FURTHER of the rest. Derived: with 4
   ranks, more than 400 communicators have 64 GiB each. Under RLIMIT_AS an arena takes at most
   1/SPAN_RANKS of the addresses left, so the arenas of SPAN_RANKS ranks fit. */
#define TUTTI__SPAN_FURTHER 32
#define TUTTI__SPAN_RANKS 16

/* Pages are reserved in pieces of at most the first length. The available memory is checked before
   each piece. A signal makes the kernel abandon a piece, which is then halved, down to the second
   length. Derived: a MiB takes 0.25 ms (Zen 5), less than the interval of a profiler's timer. */
#define TUTTI__RESERVE_MOST_BYTES ((uint64_t)64 << 20)
#define TUTTI__RESERVE_LEAST_BYTES ((uint64_t)1 << 20)

/* Ranges up to this length get their page table entries at once, so that the first use of control
   lines, rings and buckets is as fast as the second. Measured: 0.25 ms per MiB, at once instead of
   at the first touch (Zen 5). Longer ranges belong to users, whose threads may touch them in
   parallel. */
#define TUTTI__POPULATE_MOST_BYTES ((uint64_t)64 << 20)

/* [bytes] Hosts compare their calls by messages. Data of up to this size are sent in these
   messages, if a slot is long enough. Measured: docs/decisions.md, two hosts with one and two
   ranks. */
#define TUTTI__RIDE_BYTES 65536

/* [bytes] A direct call, or an asynchronous call without a name, has no wire format up to this
   size. Chosen: 4 KiB take 33 us at 1 Gbit/s, no longer than a message; a loss or a norm of a few
   numbers stays exact. */
#define TUTTI__WIRE_LEAST_BYTES 4096u

/* ---- amounts: places ---- */

/* [ranks] Largest group of ranks under one L3 cache or NUMA node. Chosen: a rank that waits for
   more lines waits too long. Not measured on a machine with several L3 caches. */
#define TUTTI__TOPO_GROUP 16

/* ---- costs: the model of coll/cost.c ---- */

/* [Mbit/s] If a network card does not report the speed of its link: the assumed speed. Chosen:
   common today. */
#define TUTTI__LINK_MBPS 10000u

/* Time of a small message from one host to another. Estimated: TCP between namespaces takes 6 us
   over UCX (docs/results.md), and switches and cards add some us; published figures of cards for
   RDMA are 1 to 2 us. */
#define TUTTI__LINK_TCP_NS 10000u
#define TUTTI__LINK_RDMA_NS 2000u

/* Inside a host: time of a message, and of a copied or reduced byte. Measured: docs/results.md. */
#define TUTTI__COST_NEAR_NS 300u
#define TUTTI__COST_NEAR_PS 100u

/* [bytes] The smallest and the largest value of TUTTI_CHUNK_BYTES, if the setting is auto. Chosen:
   at least TUTTI__RIDE_BYTES, so that a measured length does not decide which data are sent with
   the comparison of calls. With 4 credits and three streams, a lane has at most 12 MiB of slots for
   each peer. */
#define TUTTI__CHUNK_BYTES 65536u
#define TUTTI__CHUNK_MOST_BYTES 1048576u
/* [bytes] Limit of the slots of all peers, for one stream of a lane. auto halves the piece until
   the slots fit, but not below TUTTI__CHUNK_BYTES. Chosen: with 4 credits, 1 MiB up to 16 ranks,
   and 256 KiB up to 64. */
#define TUTTI__CHUNK_ALL_BYTES ((uint64_t)64 << 20)

/* Data of up to this size are sent with the comparison of calls, whatever the model expects.
   Chosen: for less data the model is too coarse. */
#define TUTTI__RIDE_LEAST_BYTES 2048u

/* ---- costs: the model of coll/device_cost.c ---- */

/* Time of one operation. NCCL: the ranks' meeting, launch, kernel, and detecting the end. COPY: a
   cudaMemcpyAsync, and detecting its end. HOST_NODE: a node operation on the host. Estimated, for
   GPUs with NVLink and PCIe 4: tests/gpu/measure.sh, part `ways`. HOST_NODE measured:
   docs/decisions.md, 0.3 to 0.65 us for two ranks. */
#define TUTTI__COST_NCCL_NS 15000u
#define TUTTI__COST_COPY_NS 7000u
#define TUTTI__COST_HOST_NODE_NS 1000u

/* Time of one byte, in picoseconds. Estimated: NCCL 100 GB/s of bus bandwidth; PCIe 20 of 32 GB/s.
   HOST_NODE, for each rank, measured: docs/decisions.md, two ranks, 1 MiB, 47 us. */
#define TUTTI__COST_NCCL_PS 10u
#define TUTTI__COST_PCIE_PS 50u
#define TUTTI__COST_HOST_NODE_PS 22u

#endif
