/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that complete futures.
 *
 * The callback of a future may be Python code, and may wait for further collectives (PowerSGD's
 * hook does). So it must not run on the library's thread, and must not wait until a blocked
 * callback ends: if no thread is idle, a new thread is started for the task. If the system starts
 * no thread, the task waits for one of the existing threads. So the first thread is started with
 * the first group, where a failure is an error. Idle threads end after a while, except one.
 *
 * The pool is never destroyed: its threads may still hold tasks while the process exits.
 */
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

namespace tutti_torch {

class Pool {
public:
    static Pool &get()
    {
        static std::mutex mutex;
        static Pool *pool = nullptr;
        std::lock_guard<std::mutex> lock(mutex);

        if (pool == nullptr || pool->pid_ != getpid()) /* a forked child has none of the threads */
            pool = new Pool();
        return *pool;
    }

    /* Start the first thread. Throws std::system_error if that is not possible. */
    void begin()
    {
        std::lock_guard<std::mutex> lock(mutex_);

        if (!has_threads_)
            start_thread();
        has_threads_ = true;
    }

    /* Does not throw if no thread can be started: the library's callbacks call this function. */
    void run(std::function<void()> task)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        tasks_.push_back(std::move(task));
        try {
            if (idle_ < tasks_.size())
                start_thread();
        } catch (const std::system_error &) {
        }
        ready_.notify_one();
    }

private:
    static constexpr auto kIdle = std::chrono::seconds(5);

    void start_thread()
    {
        sigset_t all, before;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread([this] { work(); }).detach();
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void work()
    {
        std::unique_lock<std::mutex> lock(mutex_);

        for (;;) {
            idle_++;
            while (tasks_.empty()) {
                bool woken = ready_.wait_for(lock, kIdle, [this] { return !tasks_.empty(); });
                if (!woken && idle_ > 1) {
                    idle_--;
                    return;
                }
            }
            idle_--;
            std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            task = nullptr; /* its destructor may take Python's lock */
            lock.lock();
        }
    }

    const pid_t pid_ = getpid();
    std::mutex mutex_; /* protects all below */
    std::condition_variable ready_;
    std::deque<std::function<void()>> tasks_;
    size_t idle_ = 0; /* threads that wait for a task */
    bool has_threads_ = false;
};

} // namespace tutti_torch
