//! The sampler and its thread.

use std::{
    process,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::{
    machine::{CpuReading, MachineWatch},
    process::{EndedProcess, Group, by_parent},
    resources::{LatelyUsed, ProcessUse, Resources},
};

/// Shortest interval between samples: the kernel counts CPU in ticks of 10 ms, so a shorter one would cost more
/// than it tells.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Shortest interval between readings of memory, storage and new processes.
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);

/// After a sample that cost some CPU time, the next one waits at least this many times as long. A large server thus makes
/// sampling rarer and not more expensive.
const REST: u32 = 50;

/// The same after memory was read, which is slow to add up. What it costs is the client's, and the client of a fast store
/// uses little.
const CLOSE_REST: u32 = 200;

/// Samples this process, a server's process tree and the machine until it is stopped.
///
/// Samples are taken on a thread of its own, whose CPU time is counted as the client's. Dropping the sampler ends
/// the thread and discards the samples.
pub struct Sampler {
    watch: Arc<Mutex<Watch>>,
    /// `None` where the system gave no thread; the first and the last sample are still taken.
    thread: Option<JoinHandle<()>>,
    stop: Sender<()>,
}

impl Sampler {
    /// The interval between samples, unless there is a reason for another one.
    pub const EVERY: Duration = Duration::from_millis(250);

    /// Takes the first sample, then one in every interval (of 10 ms or more) on a thread.
    ///
    /// `server` is the id of the process whose tree is the server: it, its descendants, and those that they start
    /// later. Give `None`, or this process's own id, where no server process can be told from the client. `others`
    /// are the same of the servers beside it, each with its name. Start the sampler before the clock of a trial
    /// starts: the first sample of a large server may take some tenths of a second.
    #[must_use]
    pub fn start(server: Option<u32>, others: &[(&str, u32)], every: Duration) -> Self {
        let every = every.max(SHORTEST_INTERVAL);
        let watch = Arc::new(Mutex::new(Watch::start(server, others, every)));
        let (stop, stopped) = mpsc::channel::<()>();
        let watched = Arc::clone(&watch);
        let thread = thread::Builder::new().name("acidtest-observe".to_owned()).spawn(move || {
            let mut rest = every;
            while stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                let cost = with(&watched, Watch::sample);
                rest = every.max(cost * REST);
            }
        });
        Self { watch, thread: thread.ok(), stop }
    }

    /// Goes on with another process in place of a server's that has ended: `other` is the name of one of the others,
    /// or none for the server itself. Of a server that had no process at the start nothing is observed.
    pub fn follow(&self, other: Option<&str>, pid: u32) {
        let Ok(pid) = i32::try_from(pid) else { return };
        with(&self.watch, |watch| {
            let group = match other {
                None => watch.server.as_mut(),
                Some(name) => {
                    watch.others.iter_mut().find(|(known, _)| known == name).map(|(_, group)| group)
                }
            };
            if let Some(group) = group {
                group.join(pid);
            }
        });
    }

    /// Counts another process, which drives clients too, as the client's.
    pub fn join_client(&self, pid: u32) {
        let Ok(pid) = i32::try_from(pid) else { return };
        with(&self.watch, |watch| watch.client.join(pid));
    }

    /// What was used since this was last called, or since the start, as far as samples were taken: of the client, the
    /// server, the others by their names, and the machine.
    #[must_use]
    pub fn lately(&self) -> Vec<LatelyUsed> {
        with(&self.watch, Watch::lately)
    }

    /// Ends the thread, takes one last sample and returns the resources used. A server that has ended in the
    /// meantime is reported as far as it was seen.
    #[must_use]
    pub fn stop(self) -> Resources {
        drop(self.stop);
        if let Some(thread) = self.thread {
            // a thread that panicked leaves the samples it took
            let _ = thread.join();
        }
        with(&self.watch, Watch::finish)
    }
}

fn with<T>(watch: &Mutex<Watch>, act: impl FnOnce(&mut Watch) -> T) -> T {
    act(&mut watch.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The processes and the machine that are observed, and when they were last read.
struct Watch {
    started: Instant,
    looked: Instant,
    next_close_look: Instant,
    samples: u64,
    client: Group,
    server: Option<Group>,
    /// The servers beside it, by name.
    others: Vec<(String, Group)>,
    machine: MachineWatch,
    told: LastTold,
}

/// What [`Sampler::lately`] has told already.
struct LastTold {
    at: Instant,
    /// CPU seconds of each group.
    cpu: Vec<f64>,
    machine: Option<CpuReading>,
}

impl Watch {
    fn start(server: Option<u32>, others: &[(&str, u32)], every: Duration) -> Self {
        let own = own_pid();
        let since = ticks_since_boot();
        // the machine is read first here and last at the end, so that the groups' use lies within the machine's
        let machine = MachineWatch::start(every);
        let tree = |pid: u32| {
            let pid = i32::try_from(pid).ok().filter(|pid| *pid != own)?;
            Some(Group::new(pid, true, since, every))
        };
        // where the counters are read that all use is counted from: to read the memory of thousands of processes takes seconds
        let started = Instant::now();
        let mut server = server.and_then(tree);
        let mut others: Vec<_> =
            others.iter().filter_map(|(name, pid)| Some(((*name).to_owned(), tree(*pid)?))).collect();
        let before = thread_cpu();
        for group in server.iter_mut().chain(others.iter_mut().map(|(_, group)| group)) {
            group.adopt(by_parent(own));
            group.look_at_memory();
        }
        let close_cost = thread_cpu().saturating_sub(before);
        // the client is counted from here on: not what it has cost to add up the servers' memory
        let mut client = Group::new(own, false, since, every);
        client.look_at_memory();
        let now = Instant::now();
        let mut watch = Self {
            started,
            looked: started,
            next_close_look: now + CLOSE_INTERVAL.max(close_cost * CLOSE_REST),
            samples: 0,
            client,
            server,
            others,
            machine,
            told: LastTold { at: started, cpu: Vec::new(), machine: None },
        };
        watch.groups().for_each(Group::look_at_storage);
        let ended = watch.look();
        watch.count(&ended);
        watch
    }

    /// Takes a sample; returns the CPU time of the part that every sample has, without memory, storage and new
    /// processes.
    fn sample(&mut self) -> Duration {
        if Instant::now() >= self.next_close_look {
            return self.sample_closely();
        }
        let before = thread_cpu();
        let ended = self.look();
        self.count(&ended);
        thread_cpu().saturating_sub(before)
    }

    /// Takes a sample that also reads new processes, storage and memory. Returns the same as [`Self::sample`].
    fn sample_closely(&mut self) -> Duration {
        let before = thread_cpu();
        for server in self.server.iter_mut().chain(self.others.iter_mut().map(|(_, group)| group)) {
            server.adopt(by_parent(own_pid()));
        }
        self.groups().for_each(Group::look_at_storage);
        let look = thread_cpu();
        let ended = self.look();
        let cost = thread_cpu().saturating_sub(look);
        self.groups().for_each(Group::look_at_memory);
        self.count(&ended);
        let close_cost = thread_cpu().saturating_sub(before);
        self.next_close_look = self.looked + CLOSE_INTERVAL.max(close_cost * CLOSE_REST);
        cost
    }

    fn lately(&mut self) -> Vec<LatelyUsed> {
        let Self { told, looked, .. } = self;
        let seconds = looked.saturating_duration_since(told.at).as_secs_f64();
        told.at = *looked;
        let client = [("clients", &self.client)].into_iter();
        let server = self.server.iter().map(|server| ("server", server));
        let others = self.others.iter().map(|(name, group)| (name.as_str(), group));
        let groups = client.chain(server).chain(others).enumerate();
        let mut used: Vec<LatelyUsed> = groups
            .map(|(index, (who, group))| {
                let cpu = group.result(1.0).map_or(0.0, |used| used.cpu_seconds);
                let before = told.cpu.get(index).copied().unwrap_or_default();
                told.cpu.resize(told.cpu.len().max(index + 1), 0.0);
                told.cpu[index] = cpu;
                let cores = if seconds > 0.0 { ((cpu - before) / seconds).max(0.0) } else { 0.0 };
                LatelyUsed { who: who.to_owned(), cores, memory_bytes: Some(group.memory_now()) }
            })
            .collect();
        let machine = self.machine.cores_since(&mut told.machine);
        used.extend(machine.map(|cores| LatelyUsed { who: "machine".to_owned(), cores, memory_bytes: None }));
        used
    }

    fn finish(&mut self) -> Resources {
        self.sample_closely();
        let seconds = (self.looked - self.started).as_secs_f64();
        Resources {
            seconds,
            samples: self.samples,
            client: self.client.result(seconds).unwrap_or(ProcessUse::UNSEEN),
            server: self.server.as_ref().and_then(|server| server.result(seconds)),
            others: self
                .others
                .iter()
                .filter_map(|(name, group)| Some((name.clone(), group.result(seconds)?)))
                .collect(),
            machine: self.machine.result(seconds),
        }
    }

    /// Reads the CPU counters; returns the processes that ended.
    fn look(&mut self) -> Vec<EndedProcess> {
        let now = Instant::now();
        let seconds = (now - self.looked).as_secs_f64();
        self.looked = now;
        self.samples += 1;
        let ended = self.groups().flat_map(|group| group.look(seconds)).collect();
        self.machine.look();
        ended
    }

    fn count(&mut self, ended: &[EndedProcess]) {
        self.groups().for_each(|group| group.count(ended));
    }

    /// The client first: it may be the servers' parent, and parents must be read before their children.
    fn groups(&mut self) -> impl Iterator<Item = &mut Group> {
        let others = self.others.iter_mut().map(|(_, group)| group);
        std::iter::once(&mut self.client).chain(&mut self.server).chain(others)
    }
}

fn own_pid() -> i32 {
    i32::try_from(process::id()).unwrap_or(0)
}

/// CPU time of this thread. Not wall time: on a busy machine a sample takes long without costing more.
fn thread_cpu() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// Ticks since boot by the clock that processes' start times are in; `/proc/uptime` may be a container's.
fn ticks_since_boot() -> u64 {
    let ticks = duration(clock_gettime(ClockId::Boottime)).as_nanos()
        * u128::from(procfs::ticks_per_second())
        / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}
